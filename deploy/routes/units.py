"""A deployment unit of a route that is served here: its workers, and how they fare."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from math import inf

from circinus.deploy.routes.probing import UnitProof
from circinus.deploy.routes.workloads import UnitWorkload
from circinus.deploy.runtime.deployment import DeploymentPhase
from circinus.deploy.runtime.orchestrator import Orchestrator
from circinus.deploy.runtime.walk import RequestResult
from circinus.pipelines.errors import CircinusError
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.scheduler.routing.controller import UnitObservation

_AGAIN_S = 2.0  # after which what did not start is tried again


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitStatus:
    """A unit of a route, for people."""

    name: str
    traffic_weight: float  # that the regime gives it
    part: float  # of the requests at this moment
    wanted: int  # workers
    running: int
    available: int | None  # that can be had; None: any number
    why: str  # it is less than what is wanted, or takes no traffic; empty: neither
    proof: UnitProof | None  # None: its outputs were not verified
    sent: int  # requests so far


@dataclass(slots=True, eq=False)
class RoutedUnit:
    """A unit and its workers. Used within one event loop."""

    workload: UnitWorkload
    orchestrator: Orchestrator
    pipeline: Pipeline
    wanted: int = 0  # workers that should run
    running: int = 0  # as last observed, with what follows
    ended: int = 0  # that should run, and ended
    failed: str = ""  # why workers did not start; empty: they did
    proof: UnitProof | None = None
    sent: int = 0
    again_s: float = inf  # when it is tried again
    in_hand: set[asyncio.Future[RequestResult]] = field(default_factory=set)
    proving: asyncio.Task[None] | None = None
    transitions: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def name(self) -> str:
        """Its name, which its deployment has, too."""
        return self.workload.unit.name

    @property
    def serves(self) -> bool:
        """Whether it answers requests at this moment."""
        return self.orchestrator.plan_serving(self.name) is not None

    @property
    def refused(self) -> bool:
        """Whether verification refused its outputs."""
        return self.proof is not None and not self.proof.agrees

    @property
    def available(self) -> int | None:
        """How many can be had; None: any number."""
        available = self.workload.unit.available
        if self.refused:
            return 0
        if not self.ended and not self.failed:
            return available
        return self.running if available is None else min(available, self.running)

    @property
    def why(self) -> str:
        """Why fewer can be had than are wanted, or it takes no traffic; empty: neither is so."""
        if self.proof is not None and self.proof.refusal:
            return self.proof.refusal
        if self.failed:
            return self.failed
        return f"{self.ended} ended, and are started again" if self.ended else ""

    def observation(self, *, fewest: int) -> UnitObservation:
        """Return its state; `fewest` workers run whatever is wanted."""
        return UnitObservation(
            ready=self.running,
            available=self.available,
            limit=self.workload.unit.available,
            fewest=fewest,
            is_retried=bool(self.ended or self.failed),
            agrees=None if self.proof is None else self.proof.agrees,
        )

    def refresh(self) -> None:
        """Count the workers that run, as they are now."""
        if not self.wanted:
            self.running, self.ended, self.failed = 0, 0, ""
            return
        try:
            status = self.orchestrator.status(self.name)
        except CircinusError:  # not set out yet
            return
        self.running = sum(each.up for each in status.instances)
        self.ended = sum(not each.up and each.ended is not None for each in status.instances)
        if status.reason is not None:
            self.failed = status.reason.splitlines()[0]
        elif status.phase is not DeploymentPhase.STARTING:
            self.failed = ""

    def scale(self, workers: int, now: float) -> None:
        """Run so many workers; those that did not start are tried again after a while."""
        if workers == self.wanted and not (self.failed and now >= self.again_s):
            return
        self.wanted, self.again_s = workers, now + _AGAIN_S
        graph = self.pipeline.graph
        desired = {self.name: self.workload.desired(graph, workers)} if workers else {}
        apply = self.orchestrator.apply(desired)
        task = asyncio.ensure_future(apply)
        self.transitions.add(task)
        task.add_done_callback(self.transitions.discard)

    async def close(self) -> None:
        """End its workers, after what they have in hand."""
        if self.proving is not None:
            self.proving.cancel()
        await self.orchestrator.close()
        await asyncio.gather(*self.transitions, return_exceptions=True)
