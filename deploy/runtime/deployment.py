"""A plan that serves: its dispatcher, its instances, and what outlives them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial

from circinus.deploy.runtime.dispatcher import Dispatcher
from circinus.deploy.runtime.following import ServedDeployment
from circinus.deploy.runtime.instances import (
    DesiredDeployment,
    InstanceKey,
    InstanceSpec,
    Launcher,
)
from circinus.deploy.runtime.learning import LatencyMemory
from circinus.deploy.runtime.report import BillMemory, DeploymentReport, ServedBill
from circinus.deploy.runtime.supervisor import InstanceStatus, InstanceSupervisor, WarmUp
from circinus.deploy.workers.client import WorkerClient
from circinus.pipelines.clock import Clock
from circinus.pipelines.errors import Unavailable

_DRAIN_S = 5.0  # how long requests in hand may go on when a plan is replaced
_SLOT_S = 10.0  # after which an instance that is still starting lets others start beside it
_MEMORY_S = 10.0  # between two times that what was learnt is stored
_log = logging.getLogger(__name__)

Shield = Callable[[Coroutine[None, None, None]], Awaitable[None]]
"""Waits for work that goes on if the wait is cancelled."""


class DeploymentPhase(StrEnum):
    """What a query's deployment is up to."""

    STARTING = "starting"  # its first instances are being started
    SERVING = "serving"  # every instance is up
    DEGRADED = "degraded"  # an instance is down and being started again
    FAILED = "failed"  # it did not start; nothing of it runs


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentStatus:
    """A query's deployment, for people."""

    phase: DeploymentPhase  # what it is up to
    plan_id: str  # of the plan that serves, or that starts or failed when none serves
    instances: tuple[InstanceStatus, ...] = ()  # of the plan that serves
    report: DeploymentReport | None = None  # what its requests got; None when it does not serve
    reason: str | None = None  # why the latest plan did not start, or an instance is down


@dataclass(slots=True, eq=False)
class InstanceStarts:
    """Starts instances beside few others. Used within one event loop."""

    launcher: Launcher
    clock: Clock
    _slots: asyncio.Semaphore = field(
        default_factory=lambda: asyncio.Semaphore(os.cpu_count() or 1), init=False
    )

    async def all(
        self, supervisors: Sequence[InstanceSupervisor]
    ) -> list[tuple[str, WorkerClient]]:
        """Start instances; return the slice and a client of each, once none is starting."""
        launches = [asyncio.ensure_future(self._one(each)) for each in supervisors]
        # All are waited for, so that none is still starting when the others are stopped.
        await asyncio.gather(*launches, return_exceptions=True)
        return [launched.result() for launched in launches]

    async def _one(self, supervisor: InstanceSupervisor) -> tuple[str, WorkerClient]:
        """Start one in a slot, for as long as it is as quick as others are."""
        async with self._slots:
            launching = asyncio.ensure_future(supervisor.launch())
            try:
                await asyncio.wait({launching}, timeout=_SLOT_S)
            except asyncio.CancelledError:
                launching.cancel()
                await asyncio.wait({launching})
                raise
        return await launching


@dataclass(slots=True, eq=False)
class RunningDeployment:
    """A plan and its instances. Used within one event loop."""

    query_id: str
    desired: DesiredDeployment  # that it is, but for its deadline
    dispatcher: Dispatcher
    warm_up: WarmUp
    starts: InstanceStarts
    shield: Shield
    left: Callable[[], Awaitable[None]]  # see `Followers`
    memory: LatencyMemory | None
    bills: BillMemory | None
    supervisors: Sequence[InstanceSupervisor] = ()
    _run: str = field(default_factory=partial(secrets.token_hex, 8), init=False)
    _billed: ServedBill | None = field(default=None, init=False)  # as it was stored last
    _storing: asyncio.Task[None] | None = field(default=None, init=False)

    @property
    def plan_id(self) -> str:
        """The id of its plan."""
        return self.dispatcher.plan.id

    async def start(self, specs: Iterable[InstanceSpec]) -> None:
        """Start all instances; a start that fails, or is cancelled, leaves nothing running."""
        if self.memory is not None:
            with contextlib.suppress(Unavailable):  # then it learns anew
                recalled = await asyncio.to_thread(self.memory.recall, self.plan_id)
                self.dispatcher.recall(recalled)
        self.supervisors = [self._supervisor(spec) for spec in specs]
        try:
            await self._bring_up(self.supervisors)
        except BaseException:
            await self.shield(self.end())
            raise
        self._storing = asyncio.get_running_loop().create_task(self._store())

    async def reshape(
        self, specs: Mapping[InstanceKey, InstanceSpec], desired: DesiredDeployment
    ) -> None:
        """Run instances where they should be, the others untouched."""
        missing, surplus = compared(specs, self.supervisors)
        started = [self._supervisor(spec) for spec in missing]
        try:
            await self._bring_up(started)
        except BaseException:
            await self.shield(_stop_all(started))
            raise
        going_on = [each for each in self.supervisors if each not in surplus]
        self.supervisors, self.desired = [*going_on, *started], desired
        if started or surplus:
            await self.shield(self._retire(surplus))
            counts = (self.query_id, len(started), len(surplus))
            _log.info("deployment_reshaped query_id=%s started=%d ended=%d", *counts)

    async def end(self) -> None:
        """Wait for the requests in hand, and stop everything."""
        if self._storing is not None:
            self._storing.cancel()
            await asyncio.gather(self._storing, return_exceptions=True)
        await self.left()
        await self.dispatcher.close(drain_s=_DRAIN_S)
        await self._store_once()
        await _stop_all(self.supervisors)

    def _supervisor(self, spec: InstanceSpec) -> InstanceSupervisor:
        queue, starts = self.dispatcher.queues[spec.key.queue], self.starts
        return InstanceSupervisor(spec, starts.launcher, queue, self.warm_up, starts.clock)

    async def _bring_up(self, supervisors: Sequence[InstanceSupervisor]) -> None:
        await self.warm_up.run(await self.starts.all(supervisors))
        for supervisor in supervisors:
            supervisor.serve()

    async def _retire(self, supervisors: Sequence[InstanceSupervisor]) -> None:
        if supervisors:
            await self.left()
        await asyncio.gather(*(each.retire(drain_s=_DRAIN_S) for each in supervisors))

    def served(self) -> ServedDeployment:
        """Return the plan and its addresses, for others who send it requests, too."""
        return ServedDeployment(
            desired=replace(self.desired, sample=None, deadline_s=self.dispatcher.deadline_s),
            addresses={
                str(each.spec.key): each.status.running.address
                for each in self.supervisors
                if each.status.up and each.status.running is not None
            },
        )

    def status(self, reason: str | None) -> DeploymentStatus:
        """Return how it fares; `reason`: why another plan of its query did not start."""
        instances = tuple(supervisor.status.without_handle() for supervisor in self.supervisors)
        down = [instance for instance in instances if not instance.up]
        ended = [f"{each.spec.key} ended: {each.ended}" for each in down if each.ended]
        return DeploymentStatus(
            phase=DeploymentPhase.DEGRADED if down else DeploymentPhase.SERVING,
            plan_id=self.plan_id,
            instances=instances,
            report=self.dispatcher.report(),
            reason=reason or next(iter(ended), None),
        )

    async def _store(self) -> None:
        while True:
            await asyncio.sleep(_MEMORY_S)
            await self._store_once()

    async def _store_once(self) -> None:
        """Store what was learnt and the usage of calls; if that fails, the next time is soon."""
        if self.memory is not None:
            learnt = self.dispatcher.learnt()
            storing = asyncio.to_thread(self.memory.keep, self.plan_id, learnt)
            # forgetting costs a few predictions, not the service
            await self._succeeds(storing, "latencies_not_kept")
        bill = self.dispatcher.bill()
        if self.bills is not None and bill is not None and bill != self._billed:
            storing = asyncio.to_thread(self.bills.keep, self._run, self.query_id, bill)
            if await self._succeeds(storing, "bill_not_kept"):
                self._billed = bill

    async def _succeeds(self, storing: Awaitable[None], failure: str) -> bool:
        try:
            await storing
        except Unavailable:  # the memory itself logs it
            return False
        except Exception:  # noqa: BLE001 - no reason not to serve
            _log.warning("%s plan_id=%s", failure, self.plan_id, exc_info=True)
            return False
        return True


def compared(
    wanted: Mapping[InstanceKey, InstanceSpec], running: Iterable[InstanceSupervisor]
) -> tuple[list[InstanceSpec], list[InstanceSupervisor]]:
    """Return the instances of a plan that have to start, and those that have to end."""
    there = {supervisor.spec.key: supervisor for supervisor in running}
    missing = [spec for key, spec in wanted.items() if key not in there]
    return missing, [supervisor for key, supervisor in there.items() if key not in wanted]


async def _stop_all(supervisors: Iterable[InstanceSupervisor]) -> None:
    await asyncio.gather(*(supervisor.stop() for supervisor in supervisors))
