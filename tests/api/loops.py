"""The two loops of a service that keep schedule and deployments up, ticked by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from api.reconciler import Reconciler
from api.rescheduler import Rescheduler
from api.services.capacity import Capacity
from api.services.examples import ExampleSource
from api.services.in_force import ScheduleInForce
from api.store.sql import SqlStore
from pipelines.clock import ManualClock
from scheduler.ageing import Ageing
from scheduler.greedy import Greedy
from scheduler.rolling import Upkeep
from tests.api.fakes import INFRASTRUCTURE, FakeCatalogue, FakeDeployer, schedule_store

AGEING = Ageing(growth_s=30.0, limit_s=60.0, turn_s=20.0)


@dataclass
class Loops:
    """What a running service has."""

    rescheduler: Rescheduler
    reconciler: Reconciler
    capacity: Capacity
    in_force: ScheduleInForce

    async def tick(self) -> None:
        await self.rescheduler.tick()
        await self.reconciler.tick()


def loops(
    store: SqlStore,
    deployer: FakeDeployer,
    clock: ManualClock,
    quotas: Mapping[str, float] | None = None,
) -> Loops:
    """Give the loops on one machine of one tier."""
    catalogue, schedules = FakeCatalogue(), schedule_store(store)
    capacity = Capacity(stated=INFRASTRUCTURE, store=schedules, clock=clock)
    in_force = ScheduleInForce(schedules)
    rescheduler = Rescheduler(
        store=store,
        in_force=in_force,
        capacity=capacity,
        upkeep=Upkeep(policy=Greedy(), ageing=AGEING, every_s=5.0),
        quotas=quotas or {},
        clock=clock,
        every_s=1.0,
    )
    reconciler = Reconciler(
        store=store,
        target=lambda: rescheduler.target,
        deployer=deployer,
        catalogue=catalogue,
        examples=ExampleSource(catalogue, limit=100),
        clock=clock,
        every_s=1.0,
    )
    return Loops(rescheduler, reconciler, capacity, in_force)
