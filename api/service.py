"""A running service: what the routes work with, and what starts and stops with it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

from api.bootstrap.serving import Parts, make_deployer, make_discovery, make_parts
from api.drift_watch import DriftWatch
from api.reconciler import Reconciler
from api.rescheduler import Rescheduler
from api.services.capacity import Capacity
from api.services.deployer import Deployer
from api.services.emulation import Emulation
from api.services.examples import ExampleSource
from api.services.in_force import ScheduleInForce
from api.services.knowledge import Knowledge
from api.services.preview import Assessment, WhatIf, assess, live_problem, preview
from api.services.replanning import Replanner
from api.services.requests import Requests
from api.services.submission import Intake
from api.settings import Settings, pin_numeric_threads
from api.supervisor import Supervisor, spawn_with
from deploy.methods import Method
from deploy.orchestrator import DeploymentStatus
from pipelines.errors import InvalidInput
from scheduler.problem import Problem, Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """What the routes work with.

    Attributes:
        parts: Store, catalogue, infrastructure, clock.
        intake: Takes queries in.
        requests: Sends calls to deployments.
        deployer: Runs deployments.
        capacity: The machines there are.
        in_force: The schedule.
        knowledge: Answers from measurements.
        replanner: Finds other plans.
        emulation: The links that are imitated.
    """

    parts: Parts
    intake: Intake
    requests: Requests
    deployer: Deployer
    capacity: Capacity
    in_force: ScheduleInForce
    knowledge: Knowledge
    replanner: Replanner
    emulation: Emulation

    @property
    def method(self) -> Method:
        """How it plans queries that do not say, schedules and dispatches."""
        return self.parts.settings.chosen_method

    def schedule(self) -> Schedule:
        """Give the schedule in force; an empty one before the first."""
        return self.in_force.read()[1].schedule

    def problem(self) -> Problem:
        """Give the scheduling problem as it stands."""
        parts = self.parts
        _, in_force = self.in_force.read()
        return live_problem(parts.store, in_force, self.capacity.now(), parts.quotas)

    def assess(self, schedule: Schedule) -> Assessment:
        """Give how good a schedule is for the live queries."""
        return assess(self.problem(), schedule)

    def preview(self, change: WhatIf) -> tuple[Schedule, Assessment]:
        """Give the schedule that a change would lead to, and how good it is.

        Raises:
            InvalidInput: See `api.services.preview.preview`.
        """
        _, in_force = self.in_force.read()
        now = self.parts.clock.timestamp()
        return preview(self.problem(), in_force, self.parts.upkeep, change, now=now)

    def status(self, query_id: str) -> DeploymentStatus | None:
        """Give how a query's deployment fares; None: it has none."""
        try:
            return self.deployer.status(query_id)
        except InvalidInput:
            return None


def make_service(parts: Parts, deployer: Deployer) -> Service:
    """Give a service; nothing is started."""
    settings = parts.settings
    examples = ExampleSource(parts.catalogue, limit=settings.examples_limit)
    intake = Intake(
        store=parts.store,
        catalogue=parts.catalogue,
        examples=examples,
        infrastructure=parts.infrastructure,
        clock=parts.clock,
        queue_limit=settings.queue_limit,
    )
    requests = Requests(
        store=parts.store, catalogue=parts.catalogue, examples=examples, deployer=deployer
    )
    knowledge = Knowledge(
        store=parts.store, source=parts.measurements, infrastructure=parts.infrastructure
    )
    replanner = Replanner(
        store=parts.store,
        catalogue=parts.catalogue,
        examples=examples,
        knowledge=knowledge,
        infrastructure=parts.infrastructure,
        clock=parts.clock,
    )
    return Service(
        parts=parts,
        intake=intake,
        requests=requests,
        deployer=deployer,
        capacity=Capacity(stated=parts.infrastructure, store=parts.schedules, clock=parts.clock),
        in_force=ScheduleInForce(parts.schedules),
        knowledge=knowledge,
        replanner=replanner,
        emulation=Emulation(stated=parts.infrastructure, deployer=deployer),
    )


def drift_watch(service: Service) -> DriftWatch:
    """Give what watches the deployments of a service."""
    return DriftWatch(
        store=service.parts.store,
        windows=service.requests.windows,
        replanner=service.replanner,
        every_s=service.parts.settings.drift_s,
    )


@contextlib.asynccontextmanager
async def running(settings: Settings) -> AsyncIterator[Service]:
    """Give a service that plans and deploys until the context is left."""
    pin_numeric_threads()
    parts = await asyncio.to_thread(make_parts, settings)
    deployer = make_deployer(parts)
    service = make_service(parts, deployer)
    discovery = await asyncio.to_thread(make_discovery, parts, service.capacity)
    supervisor = _supervisor(parts)
    # Whoever planned before the start is gone: workers end with their service.
    now = parts.clock.timestamp()
    parts.store.requeue_silent(since=now, at=now)
    supervisor.start()
    if discovery is not None:
        discovery.start()
    rescheduler = _rescheduler(parts, service)
    reconciler = _reconciler(parts, service, rescheduler)
    loops = [
        asyncio.create_task(loop.run()) for loop in (rescheduler, reconciler, drift_watch(service))
    ]
    try:
        yield service
    finally:
        if discovery is not None:
            discovery.stop()
        for loop in loops:
            loop.cancel()
        await asyncio.gather(*loops, return_exceptions=True)
        await asyncio.to_thread(supervisor.stop)
        await deployer.close()
        parts.store.close()


def _supervisor(parts: Parts) -> Supervisor:
    settings = parts.settings
    return Supervisor(
        store=parts.store,
        clock=parts.clock,
        spawn=spawn_with(settings),
        workers=settings.planning_workers,
        lease_s=settings.lease_s,
        crash_limit=settings.crash_limit,
    )


def _rescheduler(parts: Parts, service: Service) -> Rescheduler:
    return Rescheduler(
        store=parts.store,
        in_force=service.in_force,
        capacity=service.capacity,
        upkeep=parts.upkeep,
        quotas=parts.quotas,
        clock=parts.clock,
        every_s=parts.settings.reconcile_s,
    )


def _reconciler(parts: Parts, service: Service, rescheduler: Rescheduler) -> Reconciler:
    return Reconciler(
        store=parts.store,
        target=lambda: rescheduler.target,
        deployer=service.deployer,
        catalogue=parts.catalogue,
        examples=service.requests.examples,
        clock=parts.clock,
        every_s=parts.settings.reconcile_s,
    )
