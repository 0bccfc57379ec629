"""A service in memory, for controllers: what a test does to its queries, they see."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from threading import Lock
from typing import Unpack

from circinus.api.client import Client, Refused
from circinus.api.client.awaited import QueryFilter
from circinus.api.client.connection import Answer, CallOptions
from circinus.api.client.submission import QueryFields, QueryInput
from circinus.api.phases import CANCELLABLE, LIVE, UNFINISHED, QueryPhase
from circinus.api.schemas.base import ProblemDetails
from circinus.api.schemas.deployments import DeploymentView, ObjectiveList
from circinus.api.schemas.plans import EstimateView, PlanList, PlanView
from circinus.api.schemas.progress import QueryPage, QueryView
from circinus.api.schemas.query import QueryRequest
from circinus.api.schemas.schedule import ScheduleView, WaitingView
from circinus.pipelines.errors import InvalidInput, Unavailable
from circinus.pipelines.model.slo import SloState

_THEN = datetime(2026, 1, 1, tzinfo=UTC)
_FIGURE = EstimateView(value=0.5, low=0.4, high=0.6, confidence=0.95, inputs=10)


@dataclass
class FakeService(Client):
    """Queries by id; `calls` in order.

    Attributes:
        down: Whether it does not answer.
        refuses: Message with which it refuses a submission; None: it takes it.
        starved: Queries that the schedule has no capacity for.
        running: Queries with a deployment, also after they were retired.
        page_size: Most queries on a page.
    """

    queries: dict[str, QueryView] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    down: bool = False
    refuses: str | None = None
    starved: set[str] = field(default_factory=set)
    running: set[str] = field(default_factory=set)
    page_size: int = 200
    lock: Lock = field(default_factory=Lock)

    def submit(
        self,
        query: QueryInput | None = None,
        *,
        idempotency_key: str | None = None,
        **fields: Unpack[QueryFields],
    ) -> QueryView:
        request = query
        assert isinstance(request, QueryRequest)
        assert not fields
        self._answer(f"submit {idempotency_key}")
        if self.refuses is not None:
            raise InvalidInput.of("pipeline", self.refuses, request.pipeline)
        with self.lock:
            return self._submitted(request, idempotency_key)

    def _submitted(self, request: QueryRequest, idempotency_key: str | None) -> QueryView:
        for known in self.queries.values():
            if known.idempotency_key == idempotency_key:
                return known
        made = QueryView(
            id=f"q-{len(self.queries) + 1}",
            request=request,
            phase=QueryPhase.QUEUED,
            submitted_at=_THEN,
            updated_at=_THEN,
            idempotency_key=idempotency_key,
        )
        self.queries[made.id] = made
        return made

    def query(self, query_id: str) -> QueryView:
        self._answer(f"query {query_id}")
        if query_id not in self.queries:
            raise Refused(ProblemDetails(title="Not found", status=404, detail="query must exist"))
        return self.queries[query_id]

    def all_queries(self, **chosen: Unpack[QueryFilter]) -> Generator[QueryView]:
        prefix = chosen.get("key_prefix")
        self._answer(f"list {prefix}")
        for query in reversed(self.queries.values()):
            if (query.idempotency_key or "").startswith(prefix or ""):
                yield query

    def call(
        self,
        method: str,
        path: str,
        read: Callable[[bytes], Answer],
        **options: Unpack[CallOptions],
    ) -> Answer:
        """Answer a list of queries as the service does: page by page, newest first."""
        assert (method, path) == ("GET", "/v1/queries")
        params = options["params"]
        assert params["unfinished"] == "true"
        self._answer("list unfinished")
        with self.lock:
            queries = [q for q in reversed(self.queries.values()) if q.phase in UNFINISHED]
        limit, first = min(int(params["limit"] or 0), self.page_size), 0
        if (cursor := params["cursor"]) is not None:
            first = [q.id for q in queries].index(cursor) + 1
        items = queries[first : first + limit]
        more = items[-1].id if len(queries) > first + limit else None
        return read(QueryPage(items=items, next_cursor=more).model_dump_json().encode())

    def plans(self, query_id: str) -> PlanList:
        self._answer(f"plans {query_id}")
        plan_id = self.queries[query_id].plan_id
        return PlanList(items=[plan("p-other"), plan(plan_id or "p-none")])

    def schedule(self, *, observed: bool = True) -> ScheduleView:
        self._answer("schedule")
        waiting = [WaitingView(query_id=q, reason="full") for q in sorted(self.starved)]
        return ScheduleView(assignments=[], waiting=waiting, tiers=[])

    def deployment(self, query_id: str) -> DeploymentView:
        self._answer(f"deployment {query_id}")
        phase = "serving" if query_id in self.running else "none"
        return DeploymentView(query_id=query_id, phase=phase)

    def cancel(self, query_id: str) -> QueryView:
        self._answer(f"cancel {query_id}")
        if self.queries[query_id].phase not in CANCELLABLE:
            raise Refused(
                ProblemDetails(title="Conflict", status=409, detail="phase must be planning")
            )
        return self.move(query_id, QueryPhase.CANCELLED)

    def undeploy(self, query_id: str) -> QueryView:
        self._answer(f"undeploy {query_id}")
        if self.queries[query_id].phase not in LIVE:
            raise Refused(
                ProblemDetails(title="Conflict", status=409, detail="phase must be live")
            )
        return self.move(query_id, QueryPhase.RETIRED)

    def objectives(self) -> ObjectiveList:
        if self.down:
            raise Unavailable("no service answers", retry_after_s=1.0)
        views = (query.deployment for query in self.queries.values())
        found = [each.objectives for each in views if each is not None]
        return ObjectiveList(items=[each for each in found if each is not None])

    def set_replicas(self, query_id: str, replicas: int) -> QueryView:
        self._answer(f"scale {query_id} {replicas}")
        return self._changed(query_id, replicas=replicas)

    def drop_replicas(self, query_id: str) -> QueryView:
        self._answer(f"unscale {query_id}")
        return self._changed(query_id, replicas=None)

    def _changed(self, query_id: str, **update: object) -> QueryView:
        self.queries[query_id] = self.queries[query_id].model_copy(update=update)
        return self.queries[query_id]

    def move(self, query_id: str, phase: QueryPhase, *, plan_id: str | None = None) -> QueryView:
        """Put a query into a phase, as planning and scheduling would."""
        change = {"phase": phase, "plan_id": plan_id or self.queries[query_id].plan_id}
        self.queries[query_id] = self.queries[query_id].model_copy(update=change)
        return self.queries[query_id]

    def _answer(self, call: str) -> None:
        if self.down:
            raise Unavailable("no service answers", retry_after_s=1.0)
        self.calls.append(call)


def plan(plan_id: str) -> PlanView:
    return PlanView(
        id=plan_id,
        pipeline="add",
        configuration={},
        placement={"add": "cloud"},
        allocation={"add": 0.5},
        replicas={"add": 1},
        demand=[],
        accuracy=_FIGURE,
        latency_s=_FIGURE,
        cost_usd_per_hour=0.1 + 0.2,
        states={"accuracy": SloState.MET, "latency": SloState.LIKELY},
    )
