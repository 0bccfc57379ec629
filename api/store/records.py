"""Arguments and results of the store: frozen values with JSON documents inside.

A query's documents are parsed once, at the first access, and are typed values from then on.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np
from pydantic import ValidationError
from pydantic_core import PydanticSerializationError, from_json, to_json

from circinus.api.phases import QueryPhase
from circinus.api.schemas.base import STORED
from circinus.api.schemas.events import EventKind
from circinus.api.schemas.query import QueryRequest, to_query
from circinus.api.schemas.violations import adapter_of
from circinus.pipelines.errors import CircinusError, InvalidInput, Unavailable, Violation
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.plan import Plan
from circinus.pipelines.model.query import Query
from circinus.planner.search.result import PlanningProgress, PlanningSummary
from circinus.scheduler.problem import Schedule, Slice
from circinus.scheduler.rolling.live import Numbering
from circinus.scheduler.rolling.pooling import Slices

Value = TypeVar("Value")


def to_document(value: object) -> dict[str, object]:
    """Return the JSON form of a frozen dataclass; InvalidInput if something inside has none."""
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        raise InvalidInput.of("document", "must be made of a dataclass", type(value).__name__)
    values = {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if f.init}
    try:
        text = to_json(values, inf_nan_mode="strings", fallback=_plain)
    except PydanticSerializationError as error:
        raise InvalidInput.of("document", "must be made of plain values", str(error)) from error
    return cast("dict[str, object]", from_json(text))


def _plain(value: object) -> object:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(type(value).__name__)


def from_document(kind: type[Value], document: Mapping[str, object]) -> Value:
    """Return the value whose JSON form `to_document` made; InvalidInput if it breaks a rule."""
    try:
        return adapter_of(kind).validate_python(document)
    except ValidationError as error:
        raise _invalid(kind, error) from error


def from_text(kind: type[Value], text: str) -> Value:
    """Return what `from_document` does of the text of a document, in a third of the time."""
    try:
        return adapter_of(kind).validate_json(text)
    except ValidationError as error:
        raise _invalid(kind, error) from error


def _invalid(kind: type[object], error: ValidationError) -> InvalidInput:
    first = error.errors()[0]
    field = ".".join(map(str, (kind.__name__, *first["loc"])))
    return InvalidInput.of(field, f"must be valid ({first['msg']})", first["input"])


def record_of(kind: type[Value], row: object) -> Value:
    """Return the record of a row that has an attribute for each of its fields."""
    names = (each.name for each in dataclasses.fields(cast("Any", kind)))
    return kind(**{name: getattr(row, name) for name in names})


REPLANNED = "replanned: "
"""How the messages of replanned queries begin."""

_RETRY_AFTER_S = 5.0

JsonObject: TypeAlias = Mapping[str, object]


class NotFound(CircinusError):
    """The requested thing does not exist: a query, a plan, ...; `violations` name the field."""

    def __init__(self, kind: str, id: str) -> None:
        self.violations = (Violation.of(kind, "must exist", id),)
        super().__init__(f"{kind} must exist, got {id!r}.")


class Conflict(CircinusError):
    """The thing exists, but the request does not fit its state; `violations` have the rule."""

    def __init__(self, field: str, rule: str, value: str) -> None:
        self.violations = (Violation(field, rule, value),)
        super().__init__(f"{field} {rule}, got {value}.")


class QueueFull(Unavailable):
    """More queries wait for planning than the operator allows."""

    def __init__(self, limit: int) -> None:
        reason = f"{limit} queries wait for planning already"
        super().__init__(reason, retry_after_s=_RETRY_AFTER_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEvent:
    """An event, to be stored for its watchers."""

    kind: EventKind
    at: float  # seconds since the epoch
    words: str  # in a sentence
    data: JsonObject  # figures and names, by kind
    query_id: str | None = None  # of which query; None: of the service


@dataclass(frozen=True, slots=True, kw_only=True)
class NewQuery:
    """A query as it is submitted."""

    id: str
    spec: JsonObject  # as the client wrote it, defaults filled in, and how it is planned
    fingerprint: str  # equal for equal specifications, as submitted
    idempotency_key: str | None  # chosen by the client; None: every submission is a new query
    at: float  # seconds since the epoch, as in all of these
    tenant: str = ""  # its owner; empty: none


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseChange:
    """One step of a query's life: the phase it entered, when, why in words."""

    phase: QueryPhase
    at: float
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """A search for other plans of a query whose old ones go on serving."""

    why: str  # what drifted, in words
    infrastructure: JsonObject  # the world to plan for, as it was observed
    at: float  # when it was requested
    ended: str | None = None  # why it ended without plans, in words; None: it has not ended
    ended_at: float | None = None

    @property
    def observed(self) -> Infrastructure:
        """The world to plan for."""
        return from_document(Infrastructure, self.infrastructure)


@dataclass(frozen=True, kw_only=True)
class StoredQuery:
    """A stored query."""

    serial: int  # grows with every submission: the order of queue and list
    id: str
    spec: JsonObject  # as submitted
    phase: QueryPhase
    message: str  # why it is there, in words; may be empty
    history: tuple[PhaseChange, ...]  # every phase so far, oldest first
    progress: JsonObject | None  # latest word of the planning worker; None before the first
    result: JsonObject | None  # how planning ended, a `PlanningSummary`; None before
    claimed_by: str | None  # the worker that plans it; None: none
    cancel_requested: bool
    crashes: int  # how many workers died over planning it, or over searching on
    idempotency_key: str | None  # None: the client sent none
    search: Search | None = None  # the latest since its plans were stored; None: there was none
    revision: int = 0  # grows whenever plans are stored for it
    version: int = 1  # grows with all that is stored of it, but for the beats of its worker
    # the mix of machine types that should serve it, slices by tier and type; None: its plans' own
    pool: Slices | None = None
    pool_follows: bool = False  # whether it is chosen anew, and changed, when requests change
    # of its plan, as requested by number; None: they follow the rate of requests
    replicas: int | None = None

    @cached_property
    def request(self) -> QueryRequest:
        """What was submitted, defaults filled in, also if it would be refused by now."""
        return QueryRequest.model_validate(dict(self.spec), context=STORED)

    @cached_property
    def query(self) -> Query:
        """The query, as planning and scheduling use it."""
        return to_query(self.request)

    @cached_property
    def planned(self) -> PlanningSummary | None:
        """How planning ended; None before."""
        return None if self.result is None else from_document(PlanningSummary, self.result)

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
        """When other plans replaced its plans, oldest first."""
        return tuple(change for change in self.history if change.message.startswith(REPLANNED))

    @property
    def updated_at(self) -> float:
        """When it entered a phase, or a search began or ended."""
        searched_at = (self.search.ended_at or self.search.at) if self.search else 0.0
        return max(self.history[-1].at, searched_at)

    def entered(self, phase: QueryPhase) -> float | None:
        """Return when the query first entered a phase; None: it never did."""
        return next((change.at for change in self.history if change.phase is phase), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryState:
    """Which state of which query, see `StoredQuery`."""

    serial: int
    id: str
    version: int
    phase: QueryPhase


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPlan:
    """A plan of a query."""

    id: str  # unique among the query's; queries with the same plan have the same id
    query_id: str
    position: int  # place among the query's plans, cheapest first, from 0
    document: JsonObject
    superseded_at: float | None = None  # when others replaced it; None: it is a current plan

    @property
    def plan(self) -> Plan:
        """The plan."""
        return from_document(Plan, self.document)


PlanDocuments: TypeAlias = tuple[tuple[str, JsonObject], ...]
"""Plans in order, each (plan id, document)."""


def plan_documents(plans: Iterable[Plan]) -> PlanDocuments:
    """Return plans as the store takes them."""
    return tuple((plan.id, to_document(plan)) for plan in plans)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningEnding:
    """How planning ended."""

    phase: QueryPhase  # the next one
    message: str  # why, in words
    result: JsonObject | None  # a `PlanningSummary`; None: planning had no result
    plans: PlanDocuments = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Replan:
    """Other plans for a query, or another search for them."""

    query_id: str
    spec: JsonObject  # the query from now on
    why: str  # in words
    at: float
    # a `PlanningSummary`, with plans; None: back to the queue
    result: JsonObject | None = None
    plans: PlanDocuments = ()  # none when it is requeued
    forget: bool = False  # whether its measurements are of other data, and dropped


@dataclass(frozen=True, slots=True, kw_only=True)
class DisplacedRecord:
    """One query that had to make way for another."""

    at: float
    query_id: str  # who ran
    by: str | None  # the query that received its machines; None: they or its plan are gone
    moved: bool  # whether it is served all the same, elsewhere or with another plan


@dataclass(frozen=True, slots=True, kw_only=True)
class InForce:
    """A schedule and the state it was made for."""

    schedule: Schedule = field(
        default_factory=lambda: Schedule(assignments=(), waiting={}, utilisation={})
    )
    made_at: float = 0.0  # 0 before the first
    # tier, or type as `TIER/TYPE`, -> how many there were
    machines: Mapping[str, int] = field(default_factory=dict)
    # how the machines of tiers with types are numbered, see `scheduler.rolling.live`
    types: Numbering = field(default_factory=dict)
    # live query -> when it was served or displaced last, or submitted
    since: Mapping[str, float] = field(default_factory=dict)
    overdue: tuple[str, ...] = ()  # served because they waited too long; their turn is not over
    # query -> slices of its extra replicas, see `scheduler.rolling.replicas`
    extras: Mapping[str, tuple[Slice, ...]] = field(default_factory=dict)
    # query -> the pool that it is served by, see `scheduler.rolling.pooling`
    pools: Mapping[str, Slices] = field(default_factory=dict)
    # query that should be -> what is missing, in words
    lacking: Mapping[str, str] = field(default_factory=dict)
