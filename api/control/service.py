"""A running service: what the routes work with, and what starts and stops with it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf
from threading import Lock

from circinus.api.bootstrap.choosing import PoolChooser
from circinus.api.bootstrap.orchestrators import make_discovery
from circinus.api.bootstrap.parts import make_examples
from circinus.api.bootstrap.planners import spawn_with
from circinus.api.control.objective_watcher import LOOK_S, ObjectiveWatcher
from circinus.api.control.planning_supervisor import PlanningSupervisor
from circinus.api.control.pool_follower import PoolFollower
from circinus.api.control.reconciler import Reconciler
from circinus.api.control.rescheduler import Rescheduler
from circinus.api.event_log import Outage, event, trouble
from circinus.api.phases import QueryPhase
from circinus.api.schemas.events import EventKind
from circinus.api.schemas.pools import ChooseQueryPoolBody, QueryPoolView
from circinus.api.settings import pin_numeric_threads
from circinus.api.store.failures import DatabaseFailed
from circinus.api.store.records import NewEvent
from circinus.api.store.store import Store
from circinus.api.use_cases.capacity import Emulation
from circinus.api.use_cases.datasets import ExampleSource
from circinus.api.use_cases.deployer import Deployer, DesiredRoute
from circinus.api.use_cases.knowledge import Answers
from circinus.api.use_cases.objectives import ObservedObjectives
from circinus.api.use_cases.parts import ServiceParts
from circinus.api.use_cases.query_pools import question_of
from circinus.api.use_cases.replanning import replan_for_drift
from circinus.api.use_cases.requests import Requests
from circinus.api.use_cases.routes import desired_routes
from circinus.deploy.profiling.examples import ExampleSet
from circinus.deploy.runtime.report import DeploymentReport
from circinus.pipelines.clock import Clock
from circinus.pipelines.errors import CircinusError
from circinus.planner.answers.drift import DriftSettings, drifted
from circinus.scheduler.problem import Schedule

_DRIFT, _SUDDEN = DriftSettings(), DriftSettings(margin=1.5)
_COUNTED_S = 20.0  # for which a question about a query's measurements waits for its examples
_DROPPED_S = 60.0  # between two looks at whether old events are too many
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Service:
    """What the routes work with; nothing of it is started."""

    parts: ServiceParts
    deployer: Deployer
    examples: ExampleSource | None = None  # None: by the parts' settings

    @classmethod
    def of(cls, parts: ServiceParts, deployer: Deployer) -> Service:
        """Return a service; within the event loop that it will be used in."""
        examples, loop = make_examples(parts), asyncio.get_running_loop()

        def counted(wanted: ExampleSet) -> int:
            count = examples.count(wanted, _COUNTED_S)
            return asyncio.run_coroutine_threadsafe(count, loop).result()

        return cls(replace(parts, counted=counted), deployer, examples)

    @cached_property
    def requests(self) -> Requests:
        """The sender of requests to deployments."""
        examples = self.examples or make_examples(self.parts)
        return Requests(parts=self.parts, deployer=self.deployer, examples=examples)

    @cached_property
    def answers(self) -> Answers:
        """The answers to questions about queries."""
        return Answers(self.parts)

    @cached_property
    def pools(self) -> PoolChooser:
        """The chooser of pools."""
        return PoolChooser()

    async def choose_pool(self, query_id: str, terms: ChooseQueryPoolBody) -> QueryPoolView:
        """Return the mix of machine types for a query, by its latest requests; errors as there."""
        workload = await self.deployer.workload(query_id)
        question = await asyncio.to_thread(question_of, self.parts, query_id, terms, workload)
        choice = None if question.body is None else await self.pools.choose(question.body)
        return question.answered(choice)

    @cached_property
    def observed(self) -> dict[str, ObservedObjectives]:
        """How served queries fare by their requests, by id, as of the last look."""
        return {}

    @cached_property
    def readiness(self) -> Readiness:
        """Return whether it can write."""
        return Readiness(self.parts.store, self.parts.clock)

    @cached_property
    def emulation(self) -> Emulation:
        """The emulated links."""
        parts = self.parts
        return Emulation(
            now=parts.infrastructure,
            deployer=self.deployer,
            events=parts.store.events,
            clock=parts.clock,
        )

    def schedule(self) -> Schedule:
        """Return the schedule in force; an empty one before the first."""
        return self.parts.store.schedules.read()[1].schedule

    async def drop_old_events(self) -> None:
        """Drop the oldest events beyond the limit."""
        await asyncio.to_thread(self.parts.store.events.drop_old)

    async def look_for_drift(self) -> None:
        """Replan queries that no longer perform as planned; for use within one event loop."""
        reports = await self.deployer.reports()
        self.requests.windows.keep({(query, each.plan_id) for query, each in reports.items()})
        for query_id, report in reports.items():
            try:
                await self._look(query_id, report)
            except DatabaseFailed:
                raise
            except CircinusError as error:
                trouble(_LOG, "drift.replan_failed", query_id=query_id, cause=str(error))
                self.requests.windows.forget(query_id, report)

    async def _look(self, query_id: str, report: DeploymentReport) -> None:
        windows, plan_id = self.requests.windows, report.plan_id
        observed, recent = windows.observed(query_id, report), windows.recent(query_id, report)
        data = windows.data(query_id, plan_id)
        if observed is None:
            return
        record = await asyncio.to_thread(self.parts.store.query, query_id)
        stored = await asyncio.to_thread(self.parts.store.plans, query_id)
        plan = next((entry.plan for entry in stored if entry.id == plan_id), None)
        if record.phase is not QueryPhase.SERVING or plan is None:
            windows.forget(query_id, report)
            return
        slo = record.query.slo
        drift = drifted(plan, slo, observed, _DRIFT)
        if recent is not None and (sudden := drifted(plan, slo, recent, _SUDDEN)) is not None:
            drift, observed = sudden, recent
        if drift is None:
            return
        event(_LOG, "plan.drifted", query_id=query_id, plan_id=plan_id, drift=drift.words)
        news = NewEvent(
            kind=EventKind.DRIFTED,
            at=self.parts.clock.timestamp(),
            query_id=query_id,
            words=f"{query_id} drifted: {drift.words}",
            data={
                "plan_id": plan_id,
                "why": drift.words,
                "latency": drift.latency,
                "accuracy": drift.accuracy,
            },
        )
        await asyncio.to_thread(self.parts.store.events.tell, news)
        done = await asyncio.to_thread(
            replan_for_drift, self.parts, record, plan, drift, observed, data
        )
        # Judged anew by new requests, also where nothing could be done.
        windows.forget(query_id, report, scores=drift.accuracy)
        event(_LOG, "query.replanned", query_id=query_id, outcome=done)


@contextlib.asynccontextmanager
async def running(parts: ServiceParts, deployer: Deployer) -> AsyncIterator[Service]:
    """Return a service that plans and deploys until the context ends; it closes the deployer."""
    pin_numeric_threads()
    settings = parts.settings
    await deployer.emulate(parts.infrastructure)  # an earlier service may have had it otherwise
    service = Service.of(parts, deployer)
    parts = service.parts
    discovery = await asyncio.to_thread(make_discovery, parts)
    supervisor = PlanningSupervisor(parts=parts, spawn=spawn_with(settings))
    supervisor.start()
    if discovery is not None:
        discovery.mirror.start()
    follower = PoolFollower(parts=parts, deployer=deployer, choose=service.choose_pool)
    rescheduler = Rescheduler(parts=parts, reports=deployer.reports)
    reconciler = Reconciler(
        parts=parts,
        target=lambda: rescheduler.target,
        deployer=deployer,
    )
    watcher = ObjectiveWatcher(
        parts=parts,
        deployer=deployer,
        target=lambda: rescheduler.target,
        windows=service.requests.windows,
        now=service.observed,
    )
    routes = RouteReconciler(parts=parts, deployer=deployer)
    loops = [
        asyncio.create_task(_repeat(tick, every_s, failed))
        for tick, every_s, failed in (
            (rescheduler.tick, settings.reconcile_s, "rescheduler.tick_failed"),
            (reconciler.tick, settings.reconcile_s, "reconciler.tick_failed"),
            (service.look_for_drift, settings.drift_s, "drift.look_failed"),
            (follower.tick, settings.reconcile_s, "pools.look_failed"),
            (watcher.tick, LOOK_S, "objectives.look_failed"),
            (routes.tick, settings.reconcile_s, "routes.tick_failed"),
            (service.drop_old_events, _DROPPED_S, "events.drop_failed"),
        )
    ]
    try:
        yield service
    finally:
        if discovery is not None:
            discovery.mirror.stop()
        for loop in loops:
            loop.cancel()
        await asyncio.gather(*loops, return_exceptions=True)
        await service.requests.examples.close()
        await asyncio.to_thread(supervisor.stop)
        await deployer.close()


async def _repeat(tick: Callable[[], Awaitable[None]], every_s: float, failed: str) -> None:
    """Repeat until cancelled; log an error under that name, and go on with the next look."""
    outage = Outage(_LOG, failed)
    while True:
        try:
            await tick()
        except DatabaseFailed:  # the store logs it
            pass
        except CircinusError as error:  # the serving process is away, say
            outage.lasts(cause=str(error))
        except Exception as error:  # noqa: BLE001 - the loop's edge
            trouble(_LOG, failed, error=error)
        else:
            outage.over()
        await asyncio.sleep(every_s)


@dataclass(slots=True, kw_only=True)
class RouteReconciler:
    """Makes routes that are served follow the store. Used within one event loop."""

    parts: ServiceParts
    deployer: Deployer
    _applied: Mapping[str, DesiredRoute] = field(default_factory=dict, init=False)
    _generation: int | None = field(default=None, init=False)  # None: nothing was reported yet

    async def tick(self) -> None:
        """Look once; act if something changed."""
        wanted = await asyncio.to_thread(desired_routes, self.parts)
        generation = self.deployer.generation
        if wanted == self._applied and generation == self._generation:
            return
        await self.deployer.apply_routes(wanted)
        self._applied, self._generation = wanted, generation


_HOLDS_S = 1.0


@dataclass(slots=True, eq=False)
class Readiness:
    """Tries to write on request; an answer holds for a second. For any thread."""

    store: Store
    clock: Clock
    _tried_at: float = field(default=-inf, init=False)
    _failure: DatabaseFailed | None = field(default=None, init=False)
    _one_at_a_time: Lock = field(default_factory=Lock, init=False)

    def require(self) -> None:
        """Raise DatabaseFailed unless something could be stored: DatabaseOwned, say."""
        with self._one_at_a_time:
            if self.clock.now() - self._tried_at > _HOLDS_S:
                self._failure = self._tried()
                self._tried_at = self.clock.now()
            failure = self._failure
        if failure is not None:
            raise failure

    def _tried(self) -> DatabaseFailed | None:
        try:
            self.store.try_writing()
        except DatabaseFailed as error:
            return error.with_traceback(None)  # raised again and again
        return None
