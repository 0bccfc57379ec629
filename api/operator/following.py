"""What becomes of a `PipelineQuery`: which calls its service gets, and what its status says.

Every look starts from the object and from what the service says of it, never from memory: the
queries of an object are those whose idempotency key begins with its uid. So a controller that was
killed at any point, or missed any event, goes on with its next look, and pays for nothing twice.

A new spec is a new query. The query of the spec before serves on until the new one does, unless
the new one waits for the capacity that the old one holds: then the old one goes first, and an
event says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from circinus.api.client import Client, Refused
from circinus.api.operator.status import Event, Status, status_of
from circinus.api.phases import CANCELLABLE, LIVE, QueryPhase
from circinus.api.query_file import query_of
from circinus.api.schemas.plans import PlanList
from circinus.api.schemas.progress import QueryView
from circinus.pipelines.errors import InvalidInput

NO_DEPLOYMENT = "none"
_NOT_FOUND = 404


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenQuery:
    """An object as the cluster has it."""

    uid: str  # of this object, never used again
    generation: int  # grows with every change of the spec
    spec: Mapping[str, object]  # as the API server let it through
    status: Mapping[str, object]  # as it was written last; empty before the first time

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
    """What one look gave: a status to be written, events to be told."""

    status: Status
    events: tuple[Event, ...] = ()


def follow(seen: SeenQuery, service: Client) -> Look:
    """Let the service do what the object asks for, and give what to say of it.

    Raises:
        Refused: If the service names another problem than a broken rule.
        Unavailable: If it cannot answer now.
    """
    query = _known(seen, service)
    events: list[Event] = []
    serving = None
    if query is None:
        others = {q.id: q for q in service.all_queries(key_prefix=seen.key_prefix)}
        query = next((q for q in others.values() if q.idempotency_key == seen.key), None)
        if query is None:
            try:
                query = service.submit(query_of(dict(seen.spec)), idempotency_key=seen.key)
            except InvalidInput as error:
                # Whatever served before serves on: the new spec never became a query.
                return Look(status=Status.refused(seen.generation, str(error)))
        others.pop(query.id, None)
        events, serving = _make_way(query, others.values(), service)
    plans = _plans(service, query, seen)
    status = status_of(seen.generation, query, plans, served_by=serving)
    return Look(status=status, events=tuple(events))


def release(seen: SeenQuery, service: Client) -> tuple[str, ...]:
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


def _known(seen: SeenQuery, service: Client) -> QueryView | None:
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
    query: QueryView, others: Iterable[QueryView], service: Client
) -> tuple[list[Event], str | None]:
    """Stop the queries of older specs; give what to tell, and which of them serves on."""
    events = []
    serving = None
    for other in others:
        if other.phase is QueryPhase.SERVING and serving is None and not _is_due(query, service):
            serving = other.id  # the newest of them: requests are answered until the change
            continue
        if _stop(other, service):
            events.append(_retired(other, query))
    return events, serving


def _is_due(query: QueryView, service: Client) -> bool:
    """Whether the query of the spec before has to go: its successor serves, or needs its place."""
    if query.phase is QueryPhase.WAITING:
        return any(waiting.query_id == query.id for waiting in service.schedule().waiting)
    return query.phase is QueryPhase.SERVING


def _retired(other: QueryView, query: QueryView) -> Event:
    if other.phase is QueryPhase.SERVING and query.phase is QueryPhase.WAITING:
        message = (
            f"query {other.id} of the spec before is stopped to make room for {query.id}: "
            "requests are not answered until that one serves"
        )
        return Event(warning=True, reason="RetiredForCapacity", message=message)
    message = f"query {other.id} of an older spec is stopped"
    return Event(warning=False, reason="Retired", message=message)


def _stop(query: QueryView, service: Client) -> bool:
    """Give whether there was something to stop."""
    if query.phase in CANCELLABLE:
        service.cancel(query.id)
        return True
    if query.phase in LIVE:
        service.undeploy(query.id)
        return True
    return False


def _plans(service: Client, query: QueryView, seen: SeenQuery) -> PlanList | None:
    """Give the plans, unless the status tells of the chosen one already."""
    status = seen.status
    known = status.get("queryId") == query.id and status.get("planId") == query.plan_id
    if query.plan_id is None or (known and status.get("sloStates")):
        return None
    return service.plans(query.id)
