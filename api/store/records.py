"""What the store hands out and takes in: frozen values with JSON documents inside.

A query's documents are read once, when first asked for, and known by their types from then on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from circinus.api.phases import QueryPhase
from circinus.api.schemas.query import QueryRequest, to_query
from circinus.api.store.documents import from_document, to_document
from circinus.pipelines.errors import CircinusError, Fault
from circinus.pipelines.infrastructure import Infrastructure
from circinus.pipelines.plan import Plan
from circinus.pipelines.query import Query
from circinus.planner.search.result import PlanningProgress, PlanningResult

REPLANNED = "replanned: "
"""How the messages of replanned queries begin."""

JsonObject: TypeAlias = Mapping[str, object]


class NotFound(CircinusError):
    """What was asked for does not exist: a query, a plan, ...; `faults` say so field by field."""

    def __init__(self, kind: str, id: str) -> None:
        self.faults = (Fault.of(kind, "must exist", id),)
        super().__init__(f"{kind} must exist, got {id!r}.")


class Conflict(CircinusError):
    """The thing exists, but what was asked for does not fit its state; `faults` say what."""

    def __init__(self, field: str, rule: str, value: str) -> None:
        self.faults = (Fault(field, rule, value),)
        super().__init__(f"{field} {rule}, got {value}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class NewQuery:
    """A query as it is submitted.

    Attributes:
        id: Unique.
        spec: The query as the client wrote it, defaults filled in, and how it is planned.
        fingerprint: Equal for equal specifications, as they came.
        idempotency_key: Chosen by the client; None: every submission is a new query.
        at: Seconds since the epoch.
        tenant: Whose it is; empty: nobody's.
    """

    id: str
    spec: JsonObject
    fingerprint: str
    idempotency_key: str | None
    at: float
    tenant: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseChange:
    """One step of a query's life: the phase it entered, seconds since the epoch, why in words."""

    phase: QueryPhase
    at: float
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """A search for other plans of a query whose old ones go on serving.

    Attributes:
        why: What drifted, in words.
        infrastructure: The world to plan for, as it was observed: a document.
        at: Seconds since the epoch when it was asked for.
        ended: Why it ended without plans, in words; None: it has not ended.
        ended_at: Seconds since the epoch; None: it has not ended.
    """

    why: str
    infrastructure: JsonObject
    at: float
    ended: str | None = None
    ended_at: float | None = None

    @property
    def observed(self) -> Infrastructure:
        """The world to plan for."""
        return from_document(Infrastructure, self.infrastructure)


@dataclass(frozen=True, kw_only=True)
class StoredQuery:
    """A stored query.

    Attributes:
        serial: Grows with every submission: the order of queue and list.
        id: Unique.
        spec: As submitted.
        phase: Where it is.
        message: Why it is there, in words; may be empty.
        history: Every phase so far, oldest first.
        progress: Latest word of the planning worker; None before the first.
        result: How planning ended; None before.
        claimed_by: The worker that plans it; None: nobody.
        cancel_requested: Whether planning should stop.
        crashes: How many workers died over planning it, or over searching on.
        idempotency_key: Of the client's choice; None: it gave none.
        search: The latest search since its plans were stored; None: there was none.
        revision: Grows whenever plans are stored for it.
    """

    serial: int
    id: str
    spec: JsonObject
    phase: QueryPhase
    message: str
    history: tuple[PhaseChange, ...]
    progress: JsonObject | None
    result: JsonObject | None
    claimed_by: str | None
    cancel_requested: bool
    crashes: int
    idempotency_key: str | None
    search: Search | None = None
    revision: int = 0

    @cached_property
    def request(self) -> QueryRequest:
        """What was submitted, defaults filled in."""
        return QueryRequest.model_validate(dict(self.spec))

    @cached_property
    def query(self) -> Query:
        """What is asked for, as everybody who plans and schedules knows it."""
        return to_query(self.request)

    @cached_property
    def planned(self) -> PlanningResult | None:
        """How planning ended; None before."""
        return None if self.result is None else from_document(PlanningResult, self.result)

    @cached_property
    def latest(self) -> PlanningProgress | None:
        """Latest word of the planning worker; None before the first."""
        return None if self.progress is None else from_document(PlanningProgress, self.progress)

    @property
    def searching(self) -> Search | None:
        """The search that has not ended; None: there is none."""
        return None if self.search is None or self.search.ended is not None else self.search

    @property
    def replans(self) -> tuple[PhaseChange, ...]:
        """When other plans took the place of its plans, oldest first."""
        return tuple(change for change in self.history if change.message.startswith(REPLANNED))

    @property
    def updated_at(self) -> float:
        """Seconds since the epoch when it entered a phase, or a search began or ended."""
        search = self.search
        searched_at = 0.0 if search is None else search.ended_at or search.at
        return max(self.history[-1].at, searched_at)

    def entered(self, phase: QueryPhase) -> float | None:
        """Give when the query first entered a phase; None: it never did."""
        times = (change.at for change in self.history if change.phase is phase)
        return next(times, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPlan:
    """A plan of a query.

    Attributes:
        id: Unique among the query's plans; queries that found the same plan have the same id.
        query_id: Whose.
        position: Place among the query's plans, cheapest first, from 0.
        document: The plan, as JSON.
    """

    id: str
    query_id: str
    position: int
    document: JsonObject

    @property
    def plan(self) -> Plan:
        """The plan."""
        return from_document(Plan, self.document)


def plan_documents(plans: Iterable[Plan]) -> tuple[tuple[str, JsonObject], ...]:
    """Give plans as the store takes them: each (plan id, document)."""
    return tuple((plan.id, to_document(plan)) for plan in plans)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningEnding:
    """How planning ended.

    Attributes:
        phase: The next one.
        message: Why, in words.
        result: The document; None: planning gave nothing.
        plans: In order, each (plan id, document).
    """

    phase: QueryPhase
    message: str
    result: JsonObject | None
    plans: tuple[tuple[str, JsonObject], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Replan:
    """Other plans for a query, or another search for them.

    Attributes:
        query_id: Which query.
        spec: It from now on.
        why: In words.
        at: Seconds since the epoch.
        result: How planning ended, with plans; None: it goes back to the queue.
        plans: In order, each (plan id, document); none when it goes back to the queue.
        forget: Whether its measurements are of other data, and dropped.
    """

    query_id: str
    spec: JsonObject
    why: str
    at: float
    result: JsonObject | None = None
    plans: tuple[tuple[str, JsonObject], ...] = ()
    forget: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DisplacedRecord:
    """One query that had to make way for another.

    Attributes:
        at: Seconds since the epoch.
        query_id: Who ran.
        by: Who came onto its machines; None: nobody, its machines or its plan are gone.
        moved: Whether it is served all the same, elsewhere or with another plan.
    """

    at: float
    query_id: str
    by: str | None
    moved: bool
