"""What happens to the row of a query, within the transaction of whoever changes it."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import fields
from typing import TypeAlias

from sqlalchemy import delete
from sqlalchemy.orm import Session

from circinus.api.phases import LIVE, QueryPhase
from circinus.api.store.documents import from_document
from circinus.api.store.records import (
    REPLANNED,
    JsonObject,
    NewQuery,
    PlanningEnding,
    StoredPlan,
    StoredQuery,
)
from circinus.api.store.tables import PlanRow, QueryRow

_Plans: TypeAlias = Sequence[tuple[str, JsonObject]]
_FIELDS = tuple(field.name for field in fields(StoredQuery))


def new_row(query: NewQuery) -> QueryRow:
    """Give the row of a query that is queued."""
    row = QueryRow(
        id=query.id,
        idempotency_key=query.idempotency_key,
        fingerprint=query.fingerprint,
        spec=copy.deepcopy(dict(query.spec)),  # the caller may change its own
        tenant=query.tenant,
        cancel_requested=False,
        crashes=0,
        history=[],
    )
    enter(row, QueryPhase.QUEUED, query.at, "")
    return row


def enter(row: QueryRow, phase: QueryPhase, at: float, message: str) -> None:
    """Put a query into a phase, which its history tells."""
    row.phase = phase.value
    row.message = message
    # A new list: the mapping sees no change inside the old one.
    row.history = [*row.history, {"phase": phase.value, "at": at, "message": message}]


def record_of(row: QueryRow) -> StoredQuery:
    """Give a row as the store hands it out; its documents were read for this one session."""
    return from_document(StoredQuery, {name: getattr(row, name) for name in _FIELDS})


def stored_plan(row: PlanRow) -> StoredPlan:
    """Give a plan as the store hands it out."""
    return StoredPlan(id=row.id, query_id=row.query_id, position=row.position, document=row.plan)


def add_plans(session: Session, row: QueryRow, plans: _Plans) -> None:
    """Store plans beside those there are; where there are some, the revision grows."""
    row.revision += bool(plans)
    session.add_all(
        PlanRow(id=plan_id, query_id=row.id, position=position, plan=dict(plan))
        for position, (plan_id, plan) in enumerate(plans)
    )


def replace_plans(
    session: Session, row: QueryRow, result: JsonObject | None, plans: _Plans
) -> None:
    """Forget the plans of a query and what it went through to find them; store others."""
    session.execute(delete(PlanRow).where(PlanRow.query_id == row.id))
    row.claimed_by = row.heartbeat_at = row.search = row.progress = None
    row.crashes = 0
    row.result = None if result is None else dict(result)
    add_plans(session, row, plans)


def is_searched(row: QueryRow) -> bool:
    """Give whether a query is searched on."""
    return row.search is not None and row.search["ended"] is None


def drop_search(row: QueryRow, at: float, why: str) -> None:
    """End a search if there is one; the worker that makes it hears of that by its next beat."""
    if is_searched(row):
        row.claimed_by = row.heartbeat_at = None
        row.search = {**(row.search or {}), "ended": why, "ended_at": at}


def end_search(session: Session, row: QueryRow, ending: PlanningEnding, at: float) -> None:
    """End a search: plans take the place of the old ones, without any these stay."""
    if row.search is None or not ending.plans:
        drop_search(row, at, ending.message)
        return
    why = row.search["why"]
    replace_plans(session, row, ending.result, ending.plans)
    enter(row, QueryPhase.WAITING, at, f"{REPLANNED}{why}")


def give_back(row: QueryRow, at: float, limit: int, cause: str) -> None:
    """Take a query from its worker: to the queue, or to an end if so many died over it."""
    row.claimed_by = row.heartbeat_at = None
    crashed = f"{cause}, {row.crashes} times" if row.crashes >= limit else ""
    if row.phase in LIVE:
        if crashed:
            drop_search(row, at, crashed)
    elif row.cancel_requested:
        enter(row, QueryPhase.CANCELLED, at, "")
    elif crashed:
        enter(row, QueryPhase.FAILED, at, crashed)
    else:
        enter(row, QueryPhase.QUEUED, at, cause)
