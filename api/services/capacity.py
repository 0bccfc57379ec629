"""The machines there are: those that the infrastructure states, until somebody says otherwise.

Machines come and go while the service runs: an operator takes one down, a cluster grows. The
number of each tier is set here and remembered over restarts; the schedule follows within a
moment (`api.rescheduler` looks every `reconcile_s`). Whoever loses its machines is evicted by
name and waits; nobody is lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from api.store.schedule_store import ScheduleStore
from pipelines import checks
from pipelines.clock import Clock
from pipelines.errors import InvalidInput
from pipelines.infrastructure import Infrastructure

MOST_MACHINES = 100_000
"""Of a tier: more is a slip of the hand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """Machines of every tier. Safe to share between threads.

    Attributes:
        stated: The infrastructure as its file or preset states it.
        store: Remembers what was set.
        clock: Says when.
    """

    stated: Infrastructure
    store: ScheduleStore
    clock: Clock

    def now(self) -> Infrastructure:
        """Give the infrastructure with the machines that there are now: to schedule on."""
        return with_machines(self.stated, self.store.machines())

    def planned_for(self) -> Infrastructure:
        """Give the infrastructure to plan for.

        A plan outlives the moment: each tier has the machines that are stated, or those that
        there are now if they are more. Machines that are away may come back.
        """
        stated = {tier.name: tier.machines for tier in self.stated.tiers}
        told = self.store.machines()
        return with_machines(
            self.stated, {name: max(told.get(name, 0), n) for name, n in stated.items()}
        )

    def set_machines(self, machines: Mapping[str, int | None]) -> Infrastructure:
        """Set how many machines tiers have from now on; give the infrastructure as it is then.

        Args:
            machines: Tier -> number, `>= 0`; None: as stated again. Other tiers stay as they are.

        Raises:
            InvalidInput: If a tier does not exist or is dedicated, or a number is out of range;
                nothing was changed then.
        """
        shared = [tier.name for tier in self.stated.tiers if not tier.dedicated]
        for tier, count in machines.items():
            if tier not in shared:
                rule = f"must name shared tiers ({', '.join(shared) or 'there are none'})"
                raise InvalidInput.of("machines", rule, tier)
            if count is not None:
                fits = 0 <= count <= MOST_MACHINES
                rule = f"must be from 0 to {MOST_MACHINES}"
                checks.require(fits, f"machines.{tier}", rule, count)
        self.store.set_machines(machines, at=self.clock.timestamp())
        return self.now()


def with_machines(infrastructure: Infrastructure, machines: Mapping[str, int]) -> Infrastructure:
    """Give an infrastructure with other numbers of machines; tiers left out keep theirs.

    Machines of dedicated tiers are of the queries, not of the moment: they stay.
    """
    tiers = tuple(
        tier if tier.dedicated else replace(tier, machines=machines.get(tier.name, tier.machines))
        for tier in infrastructure.tiers
    )
    return replace(infrastructure, tiers=tiers)
