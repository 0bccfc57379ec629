"""What becomes of a `PipelineQuery`: which calls its service gets, and what its status says.

Every look starts from the object and from what the service says of it, never from memory: the
queries of an object are those whose idempotency key begins with its uid. So a controller that was
killed at any point, or missed any event, goes on with its next look, and pays for nothing twice.

A new spec is a new query. The query of the spec before serves on until the new one does, unless
the new one waits for the capacity that the old one holds: then the old one goes first, and an
event says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from api.client import Refused
from api.operator.status import Event, Status, status_of
from api.phases import CANCELLABLE, LIVE, Phase
from api.query_file import query_of
from api.schemas import (
    DeploymentView,
    PlanList,
    QueryRequest,
    QueryView,
    ScheduleView,
)
from pipelines.errors import InvalidInput

NO_DEPLOYMENT = "none"
_NOT_FOUND = 404


class Service(Protocol):
    """What the controller asks of a service; `api.client.Client` is one.

    Every method raises InvalidInput for an input that breaks rules, Refused for any other problem
    that the service names, and Unavailable when it cannot answer now.
    """

    def submit(self, request: QueryRequest, *, idempotency_key: str | None = None) -> QueryView:
        """Give the accepted query; the same key gives the same query again."""

    def query(self, query_id: str) -> QueryView:
        """Give one query."""

    def all_queries(
        self, *, phase: str | None = None, key_prefix: str | None = None
    ) -> Iterator[QueryView]:
        """Give every query whose idempotency key begins so, newest first."""

    def plans(self, query_id: str) -> PlanList:
        """Give the Pareto set of a query."""

    def schedule(self) -> ScheduleView:
        """Give the schedule."""

    def deployment(self, query_id: str) -> DeploymentView:
        """Give the deployment of a query."""

    def cancel(self, query_id: str) -> QueryView:
        """Give the query after asking to stop planning it."""

    def undeploy(self, query_id: str) -> QueryView:
        """Give the query after retiring it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """An object as the cluster has it.

    Attributes:
        uid: Of this object, never used again.
        generation: Grows with every change of the spec.
        spec: As the API server let it through.
        status: As it was written last; empty before the first time.
    """

    uid: str
    generation: int
    spec: Mapping[str, object]
    status: Mapping[str, object]

    @property
    def key(self) -> str:
        """The idempotency key of its present spec."""
        return f"{self.uid}/{self.generation}"

    @property
    def key_prefix(self) -> str:
        """How the keys of all its specs begin."""
        return f"{self.uid}/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What one look gave.

    Attributes:
        status: To be written.
        events: To be told.
    """

    status: Status
    events: tuple[Event, ...] = ()


def follow(seen: Seen, service: Service) -> Look:
    """Let the service do what the object asks for, and give what to say of it.

    Raises:
        Refused: If the service names another problem than a broken rule.
        Unavailable: If it cannot answer now.
    """
    known = _known(seen, service)
    if known is not None:
        return Look(status=status_of(seen.generation, known, _plans(service, known, seen)))
    others = {q.id: q for q in service.all_queries(key_prefix=seen.key_prefix)}
    query = next((q for q in others.values() if q.idempotency_key == seen.key), None)
    if query is None:
        try:
            query = service.submit(query_of(dict(seen.spec)), idempotency_key=seen.key)
        except InvalidInput as error:
            # Whatever served before serves on: the new spec never became a query.
            return Look(status=Status.refused(seen.generation, str(error)))
    others.pop(query.id, None)
    events, serving = _make_way(query, others, service)
    plans = _plans(service, query, seen)
    return Look(
        status=status_of(seen.generation, query, plans, served_by=serving), events=tuple(events)
    )


def release(seen: Seen, service: Service) -> tuple[str, ...]:
    """Stop everything that the object ever asked for; give the ids of what still runs.

    Raises:
        Refused: If the service names a problem.
        Unavailable: If it cannot answer now.
    """
    left = []
    for query in service.all_queries(key_prefix=seen.key_prefix):
        _stop(query, service)
        if service.deployment(query.id).phase != NO_DEPLOYMENT:
            left.append(query.id)
    return tuple(left)


def _known(seen: Seen, service: Service) -> QueryView | None:
    """Give the present spec's query, if the status names it and no other of the object is left."""
    status = seen.status
    settled = status.get("observedGeneration") == seen.generation and not status.get("servedBy")
    query_id = status.get("queryId")
    if not settled or not query_id:
        return None
    try:
        return service.query(str(query_id))
    except Refused as refusal:
        if refusal.problem.status != _NOT_FOUND:
            raise
        return None  # a service that lost its state gets the query again


def _make_way(
    query: QueryView, others: Mapping[str, QueryView], service: Service
) -> tuple[list[Event], str | None]:
    """Stop the queries of older specs; give what to tell, and which of them serves on."""
    events = []
    serving = None
    for other in others.values():
        if other.phase is Phase.SERVING and serving is None and not _is_due(query, service):
            serving = other.id  # the newest of them: requests are answered until the change
            continue
        if _stop(other, service):
            events.append(_retired(other, query))
    return events, serving


def _is_due(query: QueryView, service: Service) -> bool:
    """Whether the query of the spec before has to go: its successor serves, or needs its place."""
    if query.phase is Phase.SERVING:
        return True
    if query.phase is not Phase.WAITING:
        return False
    return any(waiting.query_id == query.id for waiting in service.schedule().waiting)


def _retired(other: QueryView, query: QueryView) -> Event:
    if other.phase is Phase.SERVING and query.phase is Phase.WAITING:
        message = (
            f"query {other.id} of the spec before is stopped to make room for {query.id}: "
            "requests are not answered until that one serves"
        )
        return Event(warning=True, reason="RetiredForCapacity", message=message)
    message = f"query {other.id} of an older spec is stopped"
    return Event(warning=False, reason="Retired", message=message)


def _stop(query: QueryView, service: Service) -> bool:
    """Give whether there was something to stop."""
    if query.phase in CANCELLABLE:
        service.cancel(query.id)
        return True
    if query.phase in LIVE:
        service.undeploy(query.id)
        return True
    return False


def _plans(service: Service, query: QueryView, seen: Seen) -> PlanList | None:
    """Give the plans, unless the status tells of the chosen one already."""
    status = seen.status
    known = status.get("queryId") == query.id and status.get("planId") == query.plan_id
    if query.plan_id is None or (known and status.get("sloStates")):
        return None
    return service.plans(query.id)
