"""The two loops of a service that keep schedule and deployments up, ticked by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from circinus.api.control.reconciler import Reconciler
from circinus.api.control.rescheduler import Rescheduler
from circinus.api.store.schedules import ScheduleStore
from circinus.api.store.store import Store
from circinus.api.use_cases.capacity import Capacity
from circinus.pipelines.clock import ManualClock
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.scheduler.policies.registry import Greedy
from circinus.scheduler.rolling.ageing import Ageing
from circinus.scheduler.rolling.scheduler import Upkeep
from tests.api.fakes import INFRASTRUCTURE, FakeDeployer, parts_of

AGEING = Ageing(growth_s=30.0, limit_s=60.0, turn_s=20.0)


@dataclass
class Loops:
    """What a running service has."""

    rescheduler: Rescheduler
    reconciler: Reconciler
    capacity: Capacity
    in_force: ScheduleStore

    async def tick(self) -> None:
        await self.rescheduler.tick()
        await self.reconciler.tick()


def loops(
    store: Store,
    deployer: FakeDeployer,
    clock: ManualClock,
    quotas: Mapping[str, float] | None = None,
    infrastructure: Infrastructure = INFRASTRUCTURE,
) -> Loops:
    """Return the loops, on one machine of one tier where nothing else is said."""
    parts = parts_of(
        store,
        Path(),
        clock,
        upkeep=Upkeep(policy=Greedy(), ageing=AGEING, every_s=5.0),
        quotas=quotas or {},
        infrastructure=infrastructure,
    )
    rescheduler = Rescheduler(parts=parts, reports=deployer.reports)
    reconciler = Reconciler(parts=parts, target=lambda: rescheduler.target, deployer=deployer)
    return Loops(rescheduler, reconciler, parts.capacity, parts.store.schedules)
