"""What a service offers and does: pipelines, machines, the schedule, its method and health."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Annotated

from fastapi import APIRouter, Depends, FastAPI, Query, Request, Response

from circinus.api.bootstrap.planning import installed_version
from circinus.api.control.feed import Feed
from circinus.api.control.service import Service
from circinus.api.http.bodies import ReadOnce
from circinus.api.http.event_stream import frame
from circinus.api.http.metrics import MEDIA_TYPE, exposition
from circinus.api.http.rendered import LATEST, TAGGED, IfNoneMatch, RenderedQueries, tagged
from circinus.api.schemas.base import HealthView, time_of
from circinus.api.schemas.deployments import LatelyView
from circinus.api.schemas.planning import MethodView, method_view
from circinus.api.schemas.schedule import PreviewBody, ScheduleView
from circinus.api.schemas.service import (
    EmulationBody,
    InfrastructureView,
    MachinesBody,
    PipelineList,
    infrastructure_view,
    pipeline_view,
    to_links,
)
from circinus.api.store.records import InForce
from circinus.api.use_cases.capacity import shared_tiers, with_limits, with_machines
from circinus.api.use_cases.scheduling import live_problem
from circinus.api.use_cases.scheduling import preview as previewed
from circinus.api.use_cases.views import displaced_view, schedule_view
from circinus.pipelines.errors import Unavailable
from circinus.pipelines.registry import listed
from circinus.scheduler.problem_form import problem_to_dict
from circinus.scheduler.rolling.assessment import assess

router = APIRouter(route_class=ReadOnce)
_TEXT = {"content": {MEDIA_TYPE.partition(";")[0]: {"schema": {"type": "string"}}}}


@dataclass(slots=True)
class RenderedSchedule:
    """Renders the schedule of a service. Safe to share between threads.

    Watchers request the schedule of a service every second. Its assessment takes a linear program
    over all plans. That, and the text, are computed at the first request for a new schedule and
    cached until the next one.
    """

    service: Service
    _made: tuple[int, ScheduleView, bytes] | None = field(default=None, init=False)
    _one_at_a_time: Lock = field(default_factory=Lock, init=False)

    def read(self) -> tuple[int, ScheduleView, bytes]:
        """Return the schedule's revision, the schedule, and its JSON."""
        with self._one_at_a_time:
            revision, in_force = self.service.parts.store.schedules.read()
            if self._made is None or self._made[0] != revision:
                view = self._view(revision, in_force)
                self._made = (revision, view, view.model_dump_json().encode())
            return self._made

    async def observed(self) -> ScheduleView:
        """Return the schedule with recent figures of the requests of each query."""
        _, view, _ = await asyncio.to_thread(self.read)
        reports = await self.service.deployer.reports()
        spans = {q: [LatelyView.of(s) for s in report.spans] for q, report in reports.items()}
        assignments = [
            each.model_copy(update={"lately": spans.get(each.query_id, [])})
            for each in view.assignments
        ]
        return view.model_copy(update={"assignments": assignments})

    def _view(self, revision: int, in_force: InForce) -> ScheduleView:
        parts, schedule = self.service.parts, in_force.schedule
        infrastructure = with_machines(parts.infrastructure, in_force.machines)
        problem = live_problem(parts)
        known = schedule.by_query.keys() | schedule.waiting.keys()
        # Queries submitted after the schedule was made are left out.
        before = tuple(c for c in problem.candidates if c.query_id in known)
        basis = replace(problem, tiers=shared_tiers(infrastructure), candidates=before, running={})
        # With its parts of limits, which determine the bound and displacements, too
        basis = replace(basis, running=dict(with_limits(schedule.by_query, basis)))
        schedule_with = replace(schedule, assignments=tuple(basis.running.values()))
        extras = [each for slices in in_force.extras.values() for each in slices]
        how_good = assess(basis, schedule_with, parts.objective, extras)
        view = schedule_view(schedule, infrastructure, how_good, in_force)
        displacements = parts.store.schedules.displaced(limit=LATEST)
        values = {
            "displaced": [displaced_view(record) for record in displacements],
            "revision": revision,
            "made_at": time_of(in_force.made_at) if revision else None,
        }
        return view.model_copy(update=values)


def provide(app: FastAPI, service: Service) -> None:
    """Let the handlers of an application use a service."""
    app.state.service = service
    app.state.schedule = RenderedSchedule(service)
    app.state.queries = RenderedQueries(service.parts)
    app.state.feed = Feed(service.parts.store.events, frame)


def end_streams(app: FastAPI) -> None:
    """End the streams of events of an application, also new ones."""
    feed = getattr(app.state, "feed", None)
    if isinstance(feed, Feed):
        feed.close()


def _service_of(request: Request) -> Service:
    service = getattr(request.app.state, "service", None)
    if not isinstance(service, Service):
        raise Unavailable("the service is starting", retry_after_s=1.0)
    return service


def _queries_of(request: Request) -> RenderedQueries:
    _service_of(request)
    rendered: RenderedQueries = request.app.state.queries
    return rendered


def _schedule_of(request: Request) -> RenderedSchedule:
    _service_of(request)
    rendered: RenderedSchedule = request.app.state.schedule
    return rendered


def _feed_of(request: Request) -> Feed:
    _service_of(request)
    feed: Feed = request.app.state.feed
    return feed


ScheduleOf = Annotated[RenderedSchedule, Depends(_schedule_of)]
FeedOf = Annotated[Feed, Depends(_feed_of)]
ServiceOf = Annotated[Service, Depends(_service_of)]
QueriesOf = Annotated[RenderedQueries, Depends(_queries_of)]


@router.get("/v1/schedule", response_model=ScheduleView, responses={**TAGGED}, tags=["schedule"])
async def schedule(
    rendered: ScheduleOf,
    observed: Annotated[bool, Query(strict=False)] = False,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Return who is admitted, with which plan, on which machines, and how good that is.

    Cheap to poll: it is computed once for each schedule. With the ETag of the last answer as
    If-None-Match the answer is an empty 304 until there is another schedule. With `observed`
    it has recent figures of the requests of each query, and no ETag.
    """
    if observed:
        text = (await rendered.observed()).model_dump_json().encode()
        return Response(text, media_type="application/json")
    revision, _, text = await asyncio.to_thread(rendered.read)
    return tagged(text, if_none_match, str(revision))


@router.post("/v1/schedule:preview", tags=["schedule"])
def preview(body: PreviewBody, service: ServiceOf) -> ScheduleView:
    """Return the schedule that a change would lead to; nothing is changed."""
    proposed, how_good = previewed(service.parts, body)
    infrastructure = with_machines(service.parts.capacity.now(), body.machines)
    return schedule_view(proposed, infrastructure, how_good)


@router.get("/v1/schedule/problem", tags=["schedule"])
def problem(service: ServiceOf) -> dict[str, object]:
    """Return the live queries with their plans, and the machines, for `circinus study ilp`."""
    return problem_to_dict(live_problem(service.parts))


@router.get("/v1/pipelines", tags=["catalogue"])
def pipelines(service: ServiceOf) -> PipelineList:
    """Return the registered pipelines with their operators and knobs, and what keeps one away."""
    catalogue = service.parts.catalogue
    return PipelineList(
        items=[pipeline_view(one) for one in listed(catalogue.names, catalogue.pipeline)]
    )


@router.get("/v1/infrastructure", tags=["catalogue"])
def infrastructure(service: ServiceOf) -> InfrastructureView:
    """Return the tiers, machines and links as they are now."""
    return infrastructure_view(service.parts.capacity.now())


@router.patch("/v1/infrastructure", tags=["catalogue"])
def set_machines(body: MachinesBody, service: ServiceOf) -> InfrastructureView:
    """Change the numbers of machines of tiers; the schedule follows within a moment."""
    return infrastructure_view(service.parts.capacity.set_machines(body.machines))


@router.get("/v1/emulation", tags=["catalogue"])
async def emulation(service: ServiceOf) -> InfrastructureView:
    """Return the infrastructure with the links that this computer emulates."""
    return infrastructure_view(service.emulation.now)


@router.patch("/v1/emulation", tags=["catalogue"])
async def set_emulation(body: EmulationBody, service: ServiceOf) -> InfrastructureView:
    """Emulate thinner or thicker links, which planning ignores: to try a drift out."""
    return infrastructure_view(await service.emulation.set_links(to_links(body)))


@router.get("/v1/method", tags=["catalogue"])
def method(service: ServiceOf) -> MethodView:
    """Return the default planning method of queries, and the schedulers and dispatchers."""
    return method_view(service.parts.settings.chosen_method)


@router.get("/metrics", response_class=Response, tags=["service"], responses={200: _TEXT})
async def metrics(service: ServiceOf) -> Response:
    """Return what queues of deployments and units of routes do, in Prometheus' text format."""
    deployer = service.deployer
    routes = {n: r for n, r in (await deployer.routes()).items() if not isinstance(r, str)}
    text = exposition(await deployer.reports(), routes)
    return Response(text, media_type=MEDIA_TYPE)


@router.get("/healthz", tags=["service"])
async def health() -> HealthView:
    """Answer while the process that answers requests to deployments lives. Needs no token."""
    return HealthView(version=installed_version("circinus"))


@router.get("/readyz", tags=["service"])
def ready(service: ServiceOf) -> HealthView:
    """Answer 200 while the service can take queries, as its database accepts writes.

    Else 503, or 507 where its disk is full, with the reason. Needs no token.
    """
    service.readiness.require()
    return HealthView(version=installed_version("circinus"))
