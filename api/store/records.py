"""What the store hands out and takes in: frozen values, JSON documents inside.

The store knows nothing of plans and queries beyond their ids and phases; the
documents are written and read by `api.documents`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from api.phases import Phase

REPLANNED = "replanned: "
"""How the messages of replanned queries begin."""

JsonObject: TypeAlias = Mapping[str, object]


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
    """One step of a query's life.

    Attributes:
        phase: Entered.
        at: Seconds since the epoch.
        message: Why, in words; may be empty.
    """

    phase: Phase
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


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryRecord:
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
    phase: Phase
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

    def entered(self, phase: Phase) -> float | None:
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
        plan: The document.
    """

    id: str
    query_id: str
    position: int
    plan: JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How planning ended.

    Attributes:
        phase: The next one.
        message: Why, in words.
        result: The document; None: planning gave nothing.
        plans: In order, each (plan id, document).
    """

    phase: Phase
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
class Move:
    """A change of phase that holds only if the query still is where it is thought to be.

    Attributes:
        query_id: Which query.
        expected: The phases it may be in.
        to: The next one; may equal the present one, to change the message.
        message: Why, in words.
        at: Seconds since the epoch.
    """

    query_id: str
    expected: frozenset[Phase]
    to: Phase
    at: float
    message: str = ""
