"""Rows of queries: each change of a row is part of its caller's transaction."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Self

from sqlalchemy import (
    Double,
    Index,
    Text,
    delete,
    false,
    update,
)
from sqlalchemy.orm import Mapped, Session, mapped_column

from circinus.api.phases import LIVE, QueryPhase
from circinus.api.schemas.events import EventKind
from circinus.api.store.records import (
    REPLANNED,
    NewEvent,
    NewQuery,
    PlanDocuments,
    PlanningEnding,
    Replan,
    Search,
    StoredQuery,
    from_document,
    to_document,
)
from circinus.api.store.tables import DOCUMENT, SERIAL, Base, PlanRow, TrialRow, tell
from circinus.scheduler.rolling.pooling import ChosenPool, Slices


class QueryRow(Base):
    """A query, its phase and the claim on it.

    The queue is the rows in phase `queued`, then live ones with a `search` that has not ended.
    """

    __tablename__ = "queries"
    __table_args__ = (Index(None, "phase", "serial"), Index(None, "tenant", "serial"))

    serial: Mapped[int] = mapped_column(SERIAL, primary_key=True, autoincrement=True)
    id: Mapped[str] = mapped_column(Text, unique=True)
    idempotency_key: Mapped[str | None] = mapped_column(Text, unique=True)
    fingerprint: Mapped[str] = mapped_column(Text)
    spec: Mapped[dict[str, object]] = mapped_column(DOCUMENT)
    phase: Mapped[str] = mapped_column(Text)
    message: Mapped[str] = mapped_column(Text, default="")
    history: Mapped[list[dict[str, object]]] = mapped_column(DOCUMENT)
    progress: Mapped[dict[str, object] | None] = mapped_column(DOCUMENT)
    result: Mapped[dict[str, object] | None] = mapped_column(DOCUMENT)
    claimed_by: Mapped[str | None] = mapped_column(Text, index=True)
    heartbeat_at: Mapped[float | None] = mapped_column(Double)
    cancel_requested: Mapped[bool] = mapped_column(default=False)
    crashes: Mapped[int] = mapped_column(default=0)
    tenant: Mapped[str] = mapped_column(Text, default="", server_default="")
    search: Mapped[dict[str, object] | None] = mapped_column(DOCUMENT)
    revision: Mapped[int] = mapped_column(default=0, server_default="0")
    pool: Mapped[dict[str, dict[str, int]] | None] = mapped_column(DOCUMENT)
    pool_follows: Mapped[bool] = mapped_column(default=False, server_default=false())
    replicas: Mapped[int | None] = mapped_column()
    version: Mapped[int] = mapped_column(server_default="1")  # the mapping counts changes by it

    __mapper_args__ = {"version_id_col": version}  # noqa: RUF012 - as the base has it

    @classmethod
    def queued(cls, session: Session, query: NewQuery) -> Self:
        """Add the row of a query that is queued."""
        values = asdict(query)  # copies: the caller may change its own
        at = values.pop("at")
        row = cls(**values, cancel_requested=False, crashes=0, history=[])
        row.enter(session, QueryPhase.QUEUED, at, "")
        session.add(row)
        return row

    @property
    def record(self) -> StoredQuery:
        """The query as the store hands it out; its documents were read for this one session."""
        values = {field.name: getattr(self, field.name) for field in fields(StoredQuery)}
        return from_document(StoredQuery, values)

    def enter(self, session: Session, phase: QueryPhase, at: float, message: str) -> None:
        """Put the query into a phase, and add it to its history and as an event."""
        self.phase, self.message = phase.value, message
        # A new list: the mapping does not detect a change inside the old one.
        self.history = [*self.history, {"phase": phase.value, "at": at, "message": message}]
        self._tell(session, at, message)

    def _tell(self, session: Session, at: float, message: str, **more: object) -> None:
        """Add the event of a phase, or of a search in it."""
        words = f"{self.id} is {self.phase}" + (f": {message}" if message else "")
        data = {"phase": self.phase, "message": message, **more}
        kind = EventKind.PHASE
        tell(session, NewEvent(kind=kind, at=at, query_id=self.id, words=words, data=data))

    def begin(self, session: Session, at: float) -> None:
        """Begin to plan, or to search: drop the trials of an earlier start."""
        session.execute(delete(TrialRow).where(TrialRow.query_id == self.id))
        if self.phase == QueryPhase.QUEUED:
            self.enter(session, QueryPhase.PLANNING, at, "")
        else:
            self._tell(session, at, "other plans are searched for", search="begun")

    def ask_for(self, session: Session, search: Search) -> None:
        """Request a search for other plans."""
        self.search, self.progress, self.crashes = to_document(search), None, 0
        self._tell(session, search.at, f"to be searched on: {search.why}", search="asked")

    def add_plans(self, session: Session, plans: PlanDocuments) -> None:
        """Store plans beside those there are; where there are some, the revision grows."""
        self.revision += bool(plans)
        again = PlanRow.id.in_([plan_id for plan_id, _ in plans])
        session.execute(delete(PlanRow).where(PlanRow.query_id == self.id, again))
        session.add_all(
            PlanRow(id=plan_id, query_id=self.id, position=position, document=dict(plan))
            for position, (plan_id, plan) in enumerate(plans)
        )

    def replan(self, session: Session, by: PlanningEnding | Replan, at: float, why: str) -> None:
        """Drop the planning state of the query; store other plans, if any.

        The plans are superseded, and those that had been before are dropped: a client that just
        read a plan's id can still request it.
        """
        mine = PlanRow.query_id == self.id
        session.execute(delete(PlanRow).where(mine, PlanRow.superseded_at.is_not(None)))
        session.execute(update(PlanRow).where(mine).values(superseded_at=at))
        self.claimed_by = self.heartbeat_at = self.search = self.progress = None
        self.crashes = 0
        self.result = None if by.result is None else dict(by.result)
        self.add_plans(session, by.plans)
        to = QueryPhase.QUEUED if by.result is None else QueryPhase.WAITING
        self.enter(session, to, at, f"{REPLANNED}{why}")
        anew = "is planned anew" if by.result is None else "has other plans"
        replanned = NewEvent(
            kind=EventKind.REPLANNED,
            at=at,
            query_id=self.id,
            words=f"{self.id} {anew}: {why}",
            data={"why": why, "anew": by.result is None, "plans": [plan for plan, _ in by.plans]},
        )
        tell(session, replanned)

    def want_pool(
        self, session: Session, pool: Slices | None, at: float, why: str = "", *, follows: bool
    ) -> None:
        """Store the pool that should serve the query; None: none any more, and why."""
        event = pool_event(self.id, "dropped" if pool is None else "chosen", at, pool or {}, why)
        self.pool_follows = follows
        self.pool = None if pool is None else {tier: dict(kinds) for tier, kinds in pool.items()}
        tell(session, event)

    def drop_search(self, session: Session, at: float, why: str) -> None:
        """End a search if there is one; its worker learns of that by its next beat."""
        if self.search is not None and self.search["ended"] is None:
            self.claimed_by = self.heartbeat_at = None
            self.search = {**self.search, "ended": why, "ended_at": at}
            self._tell(session, at, f"no longer searched on: {why}", search="ended")

    def end_search(self, session: Session, ending: PlanningEnding, at: float) -> None:
        """End a search: plans take the place of the old ones, without any these stay."""
        if self.search is None or not ending.plans:
            self.drop_search(session, at, ending.message)
        else:
            self.replan(session, ending, at, str(self.search["why"]))

    def give_back(self, session: Session, at: float, limit: int, cause: str) -> None:
        """Take the query from its worker: to the queue, or to an end if so many died over it."""
        self.claimed_by = self.heartbeat_at = None
        crashed = f"{cause}, {self.crashes} times" if self.crashes >= limit else ""
        if self.phase in LIVE:
            if crashed:
                self.drop_search(session, at, crashed)
        elif self.cancel_requested:
            self.enter(session, QueryPhase.CANCELLED, at, "")
        elif crashed:
            self.enter(session, QueryPhase.FAILED, at, crashed)
        else:
            self.enter(session, QueryPhase.QUEUED, at, cause)


def pool_event(query_id: str, state: str, at: float, pool: Slices, why: str = "") -> NewEvent:
    """Return the message on the pool of a query; `why` may be empty."""
    more = ", ".join(filter(None, (ChosenPool(slices=pool).words(), why)))
    return NewEvent(
        kind=EventKind.POOL,
        at=at,
        query_id=query_id,
        words=f"pool of {query_id} is {state}" + (f": {more}" if more else ""),
        data={"state": state, "pool": pool, "why": why or None},
    )
