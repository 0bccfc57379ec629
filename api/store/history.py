"""Measurements of earlier queries in the database: later ones on the same pipeline use them.

Bounded: of all pipelines together the newest records are retained. Each record has the query's
planning method. And the learnt latencies of deployed plans: a restarted service continues from
them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from sqlalchemy import Engine, Text, delete, select
from sqlalchemy import cast as cast_to

from circinus.api.store.engine import connect, insertion, migrate, reading, rows, writing
from circinus.api.store.query_rows import QueryRow
from circinus.api.store.records import from_document, from_text, to_document
from circinus.api.store.tables import HistoryRow, LatencyRow, ServedBillRow
from circinus.deploy.methods import DEFAULT, parts_of
from circinus.deploy.runtime.learning import Learnt
from circinus.deploy.runtime.report import ServedBill
from circinus.pipelines import checks
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.query import PlanningMethod
from circinus.planner.models.history import QueryRecord

# deviates: retained-queries: the paper forgets none
MOST_RECORDS = 1_000
_FORM = 1
"""Of exported files: another number is another form."""
_PLANNING = "planning"
"""Beside the fields of a record, in its document: how its query was planned."""


@dataclass(frozen=True, slots=True)
class HistorySummary:
    """How many queries are stored of one version of a pipeline, planned in one way."""

    pipeline: str
    fingerprint: str
    planning: PlanningMethod
    queries: int


class SqlHistory:
    """Records of earlier queries, on an engine whose tables exist. Safe to call from any thread.

    Of all fingerprints together it retains `most` records, `>= 1`, and drops the oldest.
    """

    def __init__(self, engine: Engine, *, most: int = MOST_RECORDS) -> None:
        checks.require(most >= 1, "history.most", "must be >= 1", most)
        self._engine = engine
        self._most = most

    def record(self, query: QueryRecord, planning: PlanningMethod = DEFAULT.planning) -> None:
        """Store a record, and how the query was planned; of one query the newest counts."""
        with writing(self._engine) as session:
            session.execute(delete(HistoryRow).where(HistoryRow.query == query.query))
            session.add(
                HistoryRow(
                    query=query.query,
                    pipeline=query.fingerprint.split("@")[0],
                    fingerprint=query.fingerprint,
                    record={**to_document(query), _PLANNING: parts_of(planning)},
                )
            )
            session.flush()
            newest = select(HistoryRow.serial).order_by(HistoryRow.serial.desc()).limit(self._most)
            session.execute(delete(HistoryRow).where(HistoryRow.serial.not_in(newest)))

    def earlier(self, fingerprint: str, most: int | None = None) -> Sequence[QueryRecord]:
        """Return at most `most` records of that fingerprint, the newest first; None: all."""
        wanted = (
            select(cast_to(HistoryRow.record, Text))  # parsed once, and into records at once
            .where(HistoryRow.fingerprint == fingerprint)
            .order_by(HistoryRow.serial.desc())
            .limit(None if most is None else max(most, 0))
        )
        return tuple(from_text(QueryRecord, text) for text in rows(self._engine, wanted))

    def summaries(self) -> tuple[HistorySummary, ...]:
        """Return stored plans by pipeline, version and planning settings, the oldest first."""
        wanted = select(HistoryRow).order_by(
            HistoryRow.pipeline, HistoryRow.fingerprint, HistoryRow.serial
        )
        counted = Counter(
            (row.pipeline, row.fingerprint, _planning(row.record))
            for row in rows(self._engine, wanted)
        )
        return tuple(HistorySummary(*key, count) for key, count in counted.items())

    def exported(self) -> dict[str, object]:
        """Return everything as one document, the oldest record first; `imported` takes it."""
        every = rows(self._engine, select(HistoryRow).order_by(HistoryRow.serial))
        return {"circinus_history": _FORM, "records": [row.record for row in every]}

    def imported(self, document: object) -> int:
        """Import the output of `exported`, all or nothing (InvalidInput); return the number."""
        records = _records(document)
        for record, planning in records:
            self.record(record, planning)
        return len(records)


def open_history(url: str) -> SqlHistory:
    """Return the history in a database, brought up to date; DatabaseFailed if it cannot be."""
    engine = connect(url)
    migrate(engine)
    return SqlHistory(engine)


def _records(document: object) -> list[tuple[QueryRecord, PlanningMethod]]:
    export = document if isinstance(document, dict) else {}
    form, records = export.get("circinus_history"), export.get("records")
    checks.require(form == _FORM, "history", f"must be an export of form {_FORM}", form)
    if not isinstance(records, list) or not all(isinstance(one, dict) for one in records):
        raise InvalidInput.of("history.records", "must be a list of records", records)
    return [(from_document(QueryRecord, one), _planning(one)) for one in records]


def _planning(record: Mapping[str, object]) -> PlanningMethod:
    """Return how a record's query was planned; before there was a choice: by default."""
    document = record.get(_PLANNING)
    if document is None:
        return DEFAULT.planning
    if not isinstance(document, Mapping):
        raise InvalidInput.of("history.records.planning", "must be a mapping", document)
    return from_document(PlanningMethod, document)


class SqlLatencies:
    """A `deploy.runtime.learning.LatencyMemory`; the last write of a plan's latencies wins."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        insert = insertion(engine, LatencyRow)
        # A deployment that ends stores its latencies while an earlier write may be in progress.
        renewed = {"learnt": insert.excluded.learnt}
        self._upsert = insert.on_conflict_do_update(index_elements=["plan_id"], set_=renewed)

    def recall(self, plan_id: str) -> Learnt:
        """Return what was learnt of the latencies of a plan; empty: nothing."""
        with reading(self._engine) as session:
            row = session.get(LatencyRow, plan_id)
            return {} if row is None else cast("Learnt", row.learnt)

    def keep(self, plan_id: str, learnt: Learnt) -> None:
        """Store what was learnt of the latencies of a plan."""
        document = json.loads(json.dumps(learnt, allow_nan=False))
        with writing(self._engine) as session:
            session.execute(self._upsert, {"plan_id": plan_id, "learnt": document})


class SqlBills:
    """A `deploy.runtime.report.BillMemory`, and what reads it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        insert = insertion(engine, ServedBillRow)
        renewed = {"bill": insert.excluded.bill}
        self._upsert = insert.on_conflict_do_update(index_elements=["run"], set_=renewed)

    def keep(self, run: str, query_id: str, bill: ServedBill) -> None:
        """Store the bill of one run of a plan, in place of an earlier one."""
        document = {"run": run, "query_id": query_id, "bill": to_document(bill)}
        with writing(self._engine) as session:
            session.execute(self._upsert, document)

    def of(self, query_id: str) -> tuple[ServedBill, ...]:
        """Return the bill of each plan of a query, over all of its runs; empty if none called."""
        wanted = select(ServedBillRow).where(ServedBillRow.query_id == query_id)
        bills: dict[str, ServedBill] = {}
        for row in rows(self._engine, wanted):
            bill = from_document(ServedBill, row.bill)
            before = bills.get(bill.plan_id)
            bills[bill.plan_id] = bill if before is None else before.plus(bill)
        return tuple(bills[plan_id] for plan_id in sorted(bills))


class SqlKeys:
    """The idempotency keys of the queries of a database."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def key_of(self, query_id: str) -> str | None:
        """Return the key of a query; None: it has none, or there is no such query."""
        chosen = select(QueryRow.idempotency_key).where(QueryRow.id == query_id)
        with reading(self._engine) as session:
            return session.scalar(chosen)
