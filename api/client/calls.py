"""What is sent to a service, a function for each of its routes. Pure: nothing is sent here.

A call is a value, so that it is said once for whoever waits for the answer, blocking or not.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Generic, TypeVar

from pydantic import BaseModel, TypeAdapter

from circinus.api.schemas import service
from circinus.api.schemas.base import HealthView
from circinus.api.schemas.datasets import DatasetList, DatasetView
from circinus.api.schemas.events import EventPage
from circinus.api.schemas.explanation import ExplanationView, ReplanBody, WhatIfBody, WhatIfView
from circinus.api.schemas.faults import checked
from circinus.api.schemas.planning import MethodView
from circinus.api.schemas.plans import PlanList, PlanView
from circinus.api.schemas.pooling import PoolBody, PoolView
from circinus.api.schemas.pools import (
    ChoosePoolBody,
    ChooseQueryPoolBody,
    PoolChoiceView,
    QueryPoolView,
)
from circinus.api.schemas.progress import QueryPage, QueryView
from circinus.api.schemas.query import QueryRequest
from circinus.api.schemas.routes import RouteInput, RouteList, RouteView
from circinus.api.schemas.schedule import PreviewBody, ScheduleView
from circinus.pipelines.errors import InvalidInput

TIMEOUT_S = 30.0
_CHOOSING_S = 90.0  # of a pool: the service takes a minute at most, and one at a time
PAGE_SIZE = 100
_MARGIN_S = 5.0  # beyond what a request itself allows
_UPLOADS = {"jsonl": "application/jsonl", "zip": "application/zip"}

Answer = TypeVar("Answer")
Body = TypeVar("Body", bound=BaseModel)
Document = Mapping[str, object]
"""A body that is checked before it is sent."""


class Repeat(Enum):
    """When a call may be sent again."""

    ALWAYS = "always"  # twice is as good as once
    UNSENT = "unsent"  # while nobody can have got it: twice might do it twice
    NEVER = "never"  # whoever asks wants to know how things stand now


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Generic[Answer]):
    """A request, and how its answer is read."""

    method: str
    path: str
    read: Callable[[bytes], Answer]  # raises ValueError if it is no such answer
    repeat: Repeat
    params: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes | None = None  # None: it has no body
    timeout_s: float = TIMEOUT_S  # of each try

    @property
    def key(self) -> tuple[object, ...]:
        """What is the same for calls that ask for the same thing."""
        return (self.path, *sorted(self.params.items()))


def health() -> Call[HealthView]:
    """Return the version of a service that is there, if not ready."""
    return _get(HealthView, "/healthz", repeat=Repeat.NEVER)


def ready() -> Call[HealthView]:
    """Return the same of a service that can take queries; Unavailable with the reason if not."""
    return _get(HealthView, "/readyz", repeat=Repeat.NEVER)


def metrics() -> Call[str]:
    """Return what the queues of all deployments do, in the text format of Prometheus."""
    return Call(method="GET", path="/metrics", read=bytes.decode, repeat=Repeat.ALWAYS)


def submission(request: QueryRequest, key: str) -> Call[QueryView]:
    """Return the accepted query; the same key gives the same query again."""
    headers = {"Idempotency-Key": key}
    return _post(QueryView, "/v1/queries", request, repeat=Repeat.ALWAYS, headers=headers)


def upload(kind: str, content: bytes) -> Call[DatasetView]:
    """Return a data set of JSON lines, or of a zip; its id is that of its content."""
    return Call(
        method="POST",
        path="/v1/datasets",
        read=DatasetView.model_validate_json,
        repeat=Repeat.ALWAYS,
        headers={"Content-Type": _UPLOADS[kind]},
        content=content,
    )


def dataset(dataset: str) -> Call[DatasetView]:
    """Return one data set."""
    return _get(DatasetView, f"/v1/datasets/{_part(dataset)}")


def datasets() -> Call[DatasetList]:
    """Return all data sets, the newest first."""
    return _get(DatasetList, "/v1/datasets")


def forget(dataset: str) -> Call[None]:
    """Forget a data set that no query uses."""
    path = f"/v1/datasets/{_part(dataset)}"
    return Call(method="DELETE", path=path, read=lambda _: None, repeat=Repeat.UNSENT)


def query(query_id: str) -> Call[QueryView]:
    """Return one query."""
    return _get(QueryView, _query(query_id))


def page(
    *,
    limit: int = PAGE_SIZE,
    cursor: str | None = None,
    phase: str | None = None,
    tenant: str | None = None,
    key_prefix: str | None = None,
    unfinished: bool = False,
) -> Call[QueryPage]:
    """Return a page of queries, newest first; `cursor` is the `next_cursor` of the page before."""
    return _get(
        QueryPage,
        "/v1/queries",
        limit=str(limit),
        cursor=cursor,
        phase=phase,
        tenant=tenant,
        key_prefix=key_prefix,
        unfinished="true" if unfinished else None,
    )


def cancel(query_id: str) -> Call[QueryView]:
    """Return the query after asking to stop planning it."""
    return _post(QueryView, _query(query_id, ":cancel"), repeat=Repeat.ALWAYS)


def plans(query_id: str) -> Call[PlanList]:
    """Return the Pareto set of a query."""
    return _get(PlanList, _query(query_id, "/plans"))


def plan(plan_id: str) -> Call[PlanView]:
    """Return one plan."""
    return _get(PlanView, f"/v1/plans/{_part(plan_id)}")


def explanation(plan_id: str) -> Call[ExplanationView]:
    """Return why a plan is what it is."""
    return _get(ExplanationView, f"/v1/plans/{_part(plan_id)}/explanation")


def what_if(query_id: str, body: WhatIfBody | Document) -> Call[WhatIfView]:
    """Return what other circumstances would do to a query; nothing is changed or measured."""
    asked = _checked(WhatIfBody, body)
    return _post(WhatIfView, _query(query_id, ":whatif"), asked, repeat=Repeat.ALWAYS)


def replan(query_id: str, body: ReplanBody | Document) -> Call[QueryView]:
    """Return the query after planning it again for other objectives or data."""
    asked = _checked(ReplanBody, body)
    return _post(QueryView, _query(query_id, ":replan"), asked, repeat=Repeat.UNSENT)


def schedule(*, observed: bool = True) -> Call[ScheduleView]:
    """Return the schedule, with what requests got lately unless it is not to be observed."""
    return _get(ScheduleView, "/v1/schedule", observed="true" if observed else None)


def preview(body: PreviewBody | Document) -> Call[ScheduleView]:
    """Return the schedule that a change would lead to; nothing is changed."""
    asked = _checked(PreviewBody, body)
    return _post(ScheduleView, "/v1/schedule:preview", asked, repeat=Repeat.ALWAYS)


def problem() -> Call[dict[str, object]]:
    """Return the scheduling problem as it stands, in the form that studies read."""
    path, read = "/v1/schedule/problem", TypeAdapter(dict[str, object]).validate_json
    return Call(method="GET", path=path, read=read, repeat=Repeat.ALWAYS)


def deployment(query_id: str) -> Call[service.DeploymentView]:
    """Return the deployment of a query."""
    return _get(service.DeploymentView, _query(query_id, "/deployment"))


def objectives() -> Call[service.ObjectiveList]:
    """Return how each query that is served fares by its requests."""
    return _get(service.ObjectiveList, "/v1/objectives")


def set_replicas(query_id: str, replicas: int) -> Call[QueryView]:
    """Return a query that has so many replicas from now on, as far as there is room."""
    body = _checked(service.ReplicasBody, {"replicas": replicas})
    return _set("PUT", QueryView, _query(query_id, "/replicas"), body)


def drop_replicas(query_id: str) -> Call[QueryView]:
    """Return a query whose replicas follow the rate of its requests from now on."""
    return _drop(_query(query_id, "/replicas"))


def undeploy(query_id: str) -> Call[QueryView]:
    """Return the query after retiring it and freeing its capacity."""
    return _drop(_query(query_id, "/deployment"))


def pool(query_id: str) -> Call[PoolView]:
    """Return the mix of machine types that should serve a query."""
    return _get(PoolView, _query(query_id, "/pool"))


def choose_pool(body: ChoosePoolBody | Document) -> Call[PoolChoiceView]:
    """Return which instances to rent by measured latencies; nothing is changed."""
    asked = _checked(ChoosePoolBody, body)
    call = _post(PoolChoiceView, "/v1/pools:choose", asked, repeat=Repeat.ALWAYS)
    return replace(call, timeout_s=_CHOOSING_S)


def choose_query_pool(
    query_id: str, body: ChooseQueryPoolBody | Document | None = None
) -> Call[QueryPoolView]:
    """Return the mix of machine types for a query, by what its requests were; nothing changes."""
    asked = _checked(ChooseQueryPoolBody, body or {})
    path = _query(query_id, "/pool:choose")
    return replace(_post(QueryPoolView, path, asked, repeat=Repeat.ALWAYS), timeout_s=_CHOOSING_S)


def set_pool(
    query_id: str, slices: Mapping[str, Mapping[str, int]], *, follow: bool = False
) -> Call[PoolView]:
    """Return the pool of a query that is served by it from now on: tier -> type -> slices.

    `follow`: it is chosen anew and changed when requests have become other ones.
    """
    wanted = {tier: dict(kinds) for tier, kinds in slices.items()}
    body = checked(PoolBody, {"slices": wanted, "follow": follow})
    return _set("PUT", PoolView, _query(query_id, "/pool"), body)


def drop_pool(query_id: str) -> Call[QueryView]:
    """Return a query that is served by its plan's own replicas from now on."""
    return _drop(_query(query_id, "/pool"))


def routes() -> Call[RouteList]:
    """Return the routes over deployment units, and how they fare."""
    return _get(RouteList, "/v1/routes")


def route(name: str) -> Call[RouteView]:
    """Return a route, and how it fares."""
    return _get(RouteView, _route(name))


def set_route(body: RouteInput | Document) -> Call[RouteView]:
    """Return a route that is served from now on, or as it is said now."""
    asked = _checked(RouteInput, body)
    return _set("PUT", RouteView, _route(asked.name), asked)


def drop_route(name: str) -> Call[None]:
    """End a route and its workers."""
    return Call(method="DELETE", path=_route(name), read=lambda _: None, repeat=Repeat.UNSENT)


def ask_route(name: str, body: service.RequestBody | Document) -> Call[service.RequestReply]:
    """Return the answer of one of a route's units. Once sent it is not sent again by itself."""
    asked, timed = _checked(service.RequestBody, body), f"{_route(name)}/requests"
    within_s = asked.timeout_s + _MARGIN_S
    return _post(service.RequestReply, timed, asked, repeat=Repeat.UNSENT, timeout_s=within_s)


def request(query_id: str, body: service.RequestBody | Document) -> Call[service.RequestReply]:
    """Return the answer of the deployed plan. Once sent it is not sent again by itself."""
    asked = _checked(service.RequestBody, body)
    return _post(
        service.RequestReply,
        _query(query_id, "/requests"),
        asked,
        repeat=Repeat.UNSENT,
        timeout_s=asked.timeout_s + _MARGIN_S,
    )


def pipelines() -> Call[service.PipelineList]:
    """Return the registered pipelines."""
    return _get(service.PipelineList, "/v1/pipelines")


def method() -> Call[MethodView]:
    """Return how the service plans, schedules and dispatches."""
    return _get(MethodView, "/v1/method")


def infrastructure() -> Call[service.InfrastructureView]:
    """Return the infrastructure that the service plans for."""
    return _get(service.InfrastructureView, "/v1/infrastructure")


def set_machines(machines: Mapping[str, int | None]) -> Call[service.InfrastructureView]:
    """Return the infrastructure after machines of tiers came or went; None: as stated."""
    body = checked(service.MachinesBody, {"machines": dict(machines)})
    return _set("PATCH", service.InfrastructureView, "/v1/infrastructure", body)


def emulation() -> Call[service.InfrastructureView]:
    """Return the infrastructure with the links that are imitated."""
    return _get(service.InfrastructureView, "/v1/emulation")


def set_emulation(body: service.EmulationBody | Document) -> Call[service.InfrastructureView]:
    """Return the infrastructure with the links that are imitated from now on."""
    asked = _checked(service.EmulationBody, body)
    return _set("PATCH", service.InfrastructureView, "/v1/emulation", asked)


def event_page(
    query_id: str | None = None, *, after: int | None = None, limit: int = PAGE_SIZE
) -> Call[EventPage]:
    """Return events after a serial number, of a query or of everything, the oldest first."""
    told = None if after is None else str(after)
    return _get(EventPage, event_path(query_id), after=told, limit=str(limit))


def event_path(query_id: str | None) -> str:
    """Return where events are told: of a query, or None: of everything."""
    return "/v1/events" if query_id is None else _query(query_id, "/events")


Shown = TypeVar("Shown", bound=BaseModel)


def _get(
    answer: type[Shown], path: str, *, repeat: Repeat = Repeat.ALWAYS, **params: str | None
) -> Call[Shown]:
    told = {name: value for name, value in params.items() if value is not None}
    read = answer.model_validate_json
    return Call(method="GET", path=path, read=read, repeat=repeat, params=told)


def _post(
    answer: type[Shown],
    path: str,
    body: BaseModel | None = None,
    *,
    repeat: Repeat,
    headers: Mapping[str, str] | None = None,
    timeout_s: float = TIMEOUT_S,
) -> Call[Shown]:
    return Call(
        method="POST",
        path=path,
        read=answer.model_validate_json,
        repeat=repeat,
        headers={**(headers or {}), **({} if body is None else _JSON)},
        content=None if body is None else _json(body),
        timeout_s=timeout_s,
    )


def _set(method: str, answer: type[Shown], path: str, body: BaseModel) -> Call[Shown]:
    """Return a change that says how things are to be, not by how much they change."""
    return Call(
        method=method,
        path=path,
        read=answer.model_validate_json,
        repeat=Repeat.ALWAYS,
        headers=_JSON,
        content=_json(body),
    )


def _drop(path: str) -> Call[QueryView]:
    """Return a query without a part of it."""
    read = QueryView.model_validate_json
    return Call(method="DELETE", path=path, read=read, repeat=Repeat.ALWAYS)


def _route(name: str) -> str:
    return f"/v1/routes/{_part(name)}"


_JSON = {"Content-Type": "application/json"}


def _json(body: BaseModel) -> bytes:
    # What the caller left out takes the defaults of the service.
    document = body.model_dump(mode="json", exclude_unset=True)
    try:
        return json.dumps(document, allow_nan=False).encode()
    except ValueError as error:
        raise InvalidInput.of("body", "must have finite numbers only", str(error)) from error


def _checked(kind: type[Body], given: Body | Document) -> Body:
    return given if isinstance(given, kind) else checked(kind, given)


def _query(query_id: str, rest: str = "") -> str:
    return f"/v1/queries/{_part(query_id)}{rest}"


def _part(identifier: str) -> str:
    """Return an id as one part of a path: it cannot reach another route."""
    if not identifier or not identifier.isascii() or not set(identifier).isdisjoint("/:?#%. "):
        raise InvalidInput.of("id", "must be the id of a query or plan", identifier)
    return identifier
