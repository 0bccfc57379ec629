"""A running service: what the routes work with, and what starts and stops with it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

from circinus.api.bootstrap.serving import make_deployer, make_discovery, make_parts
from circinus.api.control.drift_watch import DriftWatch
from circinus.api.control.reconciler import Reconciler
from circinus.api.control.rescheduler import Rescheduler
from circinus.api.control.supervisor import PlanningSupervisor, spawn_with
from circinus.api.schemas.schedule import PreviewBody
from circinus.api.settings import Settings, pin_numeric_threads
from circinus.api.use_cases.capacity import Emulation
from circinus.api.use_cases.deployer import Deployer
from circinus.api.use_cases.parts import ServiceParts
from circinus.api.use_cases.requests import Requests
from circinus.api.use_cases.scheduling import Assessment, live_problem, preview
from circinus.deploy.runtime.orchestrator import DeploymentStatus
from circinus.pipelines.errors import InvalidInput
from circinus.scheduler.problem import Problem, Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """What the routes work with.

    Attributes:
        parts: Store, pipelines, machines, clock.
        deployer: Runs deployments.
        requests: Sends calls to them.
        emulation: The links that are imitated.
    """

    parts: ServiceParts
    deployer: Deployer
    requests: Requests
    emulation: Emulation

    def schedule(self) -> Schedule:
        """Give the schedule in force; an empty one before the first."""
        return self.parts.in_force.read()[1].schedule

    def problem(self) -> Problem:
        """Give the scheduling problem as it stands."""
        parts = self.parts
        _, in_force = parts.in_force.read()
        return live_problem(parts.store, in_force, parts.capacity.now(), parts.quotas)

    def preview(self, change: PreviewBody) -> tuple[Schedule, Assessment]:
        """Give the schedule that a change would lead to, and how good it is.

        Raises:
            InvalidInput: See `api.use_cases.scheduling.preview`.
        """
        _, in_force = self.parts.in_force.read()
        now = self.parts.clock.timestamp()
        return preview(self.problem(), in_force, self.parts.upkeep, change, now=now)

    def status(self, query_id: str) -> DeploymentStatus | None:
        """Give how a query's deployment fares; None: it has none."""
        try:
            return self.deployer.status(query_id)
        except InvalidInput:
            return None


def make_service(parts: ServiceParts, deployer: Deployer) -> Service:
    """Give a service; nothing is started."""
    return Service(
        parts=parts,
        deployer=deployer,
        requests=Requests(parts=parts, deployer=deployer),
        emulation=Emulation(stated=parts.infrastructure, deployer=deployer),
    )


def drift_watch(service: Service) -> DriftWatch:
    """Give what watches the deployments of a service."""
    return DriftWatch(parts=service.parts, windows=service.requests.windows)


@contextlib.asynccontextmanager
async def running(settings: Settings) -> AsyncIterator[Service]:
    """Give a service that plans and deploys until the context is left."""
    pin_numeric_threads()
    parts = await asyncio.to_thread(make_parts, settings)
    deployer = make_deployer(parts)
    service = make_service(parts, deployer)
    discovery = await asyncio.to_thread(make_discovery, parts)
    supervisor = PlanningSupervisor(parts=parts, spawn=spawn_with(settings))
    # Whoever planned before the start is gone: workers end with their service.
    now = parts.clock.timestamp()
    parts.store.queue.requeue_silent(since=now, at=now)
    supervisor.start()
    if discovery is not None:
        discovery.start()
    rescheduler = Rescheduler(parts=parts)
    reconciler = Reconciler(parts=parts, target=lambda: rescheduler.target, deployer=deployer)
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
