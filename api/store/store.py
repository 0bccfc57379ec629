"""The contract of the store: queries as rows, which are also the queue of the planning workers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from api.phases import Phase
from api.store.records import (
    Ending,
    JsonObject,
    Move,
    NewQuery,
    QueryRecord,
    Replan,
    Search,
    StoredPlan,
)
from pipelines.errors import CircinusError


class NotFound(CircinusError):
    """What was asked for does not exist.

    Attributes:
        kind: `query`, `plan`, ...
        id: As asked for.
    """

    def __init__(self, kind: str, id: str) -> None:
        self.kind = kind
        self.id = id
        super().__init__(f"{kind} must exist, got {id!r}.")


class Conflict(CircinusError):
    """The thing exists, but what was asked for does not fit its state.

    Attributes:
        field: What is in the way.
        rule: What must hold.
        value: What holds.
    """

    def __init__(self, field: str, rule: str, value: str) -> None:
        self.field = field
        self.rule = rule
        self.value = value
        super().__init__(f"{field} {rule}, got {value}.")


class Store(Protocol):
    """Keeps everything that a user waits for. Safe to share between threads and processes.

    Values go in and come out by copy: changing a document afterwards changes nothing here. What a
    method did is stored when it returns, and each does all or nothing.
    """

    def submit(self, query: NewQuery) -> tuple[QueryRecord, bool]:
        """Queue a query; give its record and whether it is new.

        A known idempotency key gives the query that first came with it.

        Raises:
            Conflict: If the key came with another specification before.
        """

    def query(self, query_id: str) -> QueryRecord:
        """Give a query.

        Raises:
            NotFound: If there is none of that id.
        """

    def queries(
        self,
        *,
        limit: int,
        before: int | None = None,
        phases: frozenset[Phase] | None = None,
        tenant: str | None = None,
        key_prefix: str | None = None,
    ) -> tuple[QueryRecord, ...]:
        """Give queries, newest first.

        Args:
            limit: Most to give, `>= 1`.
            before: Only those with a smaller serial; None: from the newest.
            phases: Only those in one of these; None: any.
            tenant: Only this one's; None: anybody's.
            key_prefix: Only those whose idempotency key begins so; None: any.
        """

    def ids(self, phases: frozenset[Phase]) -> tuple[str, ...]:
        """Give the ids of all queries in one of the phases, oldest first. Cheap."""

    def live(self) -> Mapping[str, int]:
        """Give the live queries, oldest first: id -> revision of its plans. Cheap.

        A query whose revision differs from what it was has other plans, or had them meanwhile.
        """

    def count(self, phases: frozenset[Phase]) -> int:
        """Give how many queries are in one of the phases."""

    def claim(self, worker: str, *, at: float) -> QueryRecord | None:
        """Give a worker the oldest queued query, now planning; None: there is nothing to plan.

        Where none is queued, the live query whose search was asked for first: it stays in its
        phase. No query is ever given to two workers.
        """

    def beat(
        self, query_id: str, worker: str, *, at: float, progress: JsonObject | None = None
    ) -> bool:
        """Renew a worker's hold of a query, with news if there are; give whether to stop.

        True when cancelling was asked for, and when the worker holds the query no longer.
        """

    def finish(self, query_id: str, worker: str, ending: Ending, *, at: float) -> bool:
        """Store how planning ended, plans included; False: the worker holds the query no longer.

        A query that should be cancelled becomes `cancelled`, whatever the ending. Where a live
        query was searched on, plans replace the old ones as in `replan`; without plans only its
        search ends, with the ending's message.
        """

    def crashed(self, worker: str, *, at: float, limit: int, cause: str) -> tuple[str, ...]:
        """Take its queries from a worker that died; give their ids.

        They go back to the queue; at the limit of crashes they are `failed` with the cause. A
        search goes back, or ends with the cause; its query stays as it is.
        """

    def release(self, worker: str, *, at: float) -> tuple[str, ...]:
        """Return its queries and searches from a worker that was stopped; give the ids."""

    def requeue_silent(self, *, since: float, at: float) -> tuple[str, ...]:
        """Return what is planned or searched without a beat since then; give the ids."""

    def request_cancel(self, query_id: str, *, at: float) -> QueryRecord:
        """Cancel a queued query at once, and ask the worker of one in planning to stop.

        Of a live query the search is cancelled, at once; its plans go on serving.

        Raises:
            NotFound: If there is none of that id.
            Conflict: If planning it is over, unless it was cancelled before.
        """

    def move(self, move: Move) -> bool:
        """Change the phase; False: the query was in none of the expected phases.

        The history grows only if the phase or the message is a new one. A query that is not live
        any more is searched on no longer.
        """

    def replan(self, replan: Replan) -> bool:
        """Replace a planned query's plans, or queue it again; False: it is in planning or retired.

        With plans it waits for capacity anew. The checkpoint goes, measurements stay unless they
        are to be forgotten. It is searched on no longer.

        Raises:
            NotFound: If there is no such query.
        """

    def search_on(self, query_id: str, search: Search) -> bool:
        """Ask for a search for other plans while a query stays as it is.

        False: it is not live, or searched on already.

        Raises:
            NotFound: If there is no such query.
        """

    def plans(self, query_id: str) -> tuple[StoredPlan, ...]:
        """Give the plans of a query in order; empty before planning ended."""

    def plan(self, plan_id: str) -> StoredPlan:
        """Give a plan; that of the newest query where several found the same.

        Raises:
            NotFound: If there is none of that id.
        """

    def close(self) -> None:
        """Let go of connections; using the store afterwards is an error."""
