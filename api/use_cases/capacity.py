"""The machines and links there are: as the infrastructure states, until told otherwise.

Machines come and go while the service runs. The number of each tier is set here and remembered
over restarts; the schedule follows within a moment (`api.control.rescheduler` looks every
`reconcile_s`). Whoever loses its machines is evicted by name and waits. The links that this
computer imitates are apart from it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from circinus.api.schemas.base import BYTES_PER_MBIT
from circinus.api.schemas.events import EventKind
from circinus.api.store.events import EventLog
from circinus.api.store.records import NewEvent
from circinus.api.store.schedules import ScheduleStore
from circinus.api.use_cases.deployer import Deployer
from circinus.pipelines import checks
from circinus.pipelines.clock import Clock
from circinus.pipelines.model.infrastructure import Infrastructure, Link
from circinus.pipelines.model.tiers import Tier
from circinus.pipelines.ranges import MACHINES


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """Machines of every tier, `stated` and as they were set. Safe to share between threads."""

    stated: Infrastructure
    store: ScheduleStore
    clock: Clock

    def now(self) -> Infrastructure:
        """Return the infrastructure with the machines that there are now: to schedule on."""
        return with_machines(self.stated, self.store.machines())

    def planned_for(self) -> Infrastructure:
        """Return the infrastructure to plan for, each tier with the machines stated or more.

        A plan outlives the moment: machines that are away may come back.
        """
        told = self.store.machines()
        pools = {name: p for tier in self.stated.tiers for name, p in tier.pools.items()}
        most = {name: max(told.get(name, 0), pool.machines) for name, pool in pools.items()}
        return with_machines(self.stated, most)

    def set_machines(self, machines: Mapping[str, int | None]) -> Infrastructure:
        """Set how many machines tiers have from now on; give the infrastructure as it is then.

        Of a tier with types that is said type by type, as `TIER/TYPE`. None: as stated again.
        Others stay as they are. InvalidInput if a tier or type does not exist or is dedicated, or
        a number is out of range; nothing was changed then.
        """
        require_pools(self.stated, machines)
        for tier, count in machines.items():
            MACHINES.check(f"machines.{tier}", count)
        self.store.set_machines(machines, at=self.clock.timestamp())
        return self.now()


def require_pools(infrastructure: Infrastructure, names: Iterable[str]) -> None:
    """Raise InvalidInput unless all name shared tiers without types, or types as `TIER/TYPE`."""
    tiers = infrastructure.tiers
    shared = {t.name: [*t.pools] for t in tiers if not (t.dedicated or t.remote)}
    known = [pool for pools in shared.values() for pool in pools]
    for name in names:
        rule = f"must name shared tiers ({', '.join(known) or 'there are none'})"
        if name in shared:
            rule = f"must name one of the tier's types ({', '.join(shared[name])})"
        checks.require(name in known, "machines", rule, name)


def with_machines(infrastructure: Infrastructure, machines: Mapping[str, int]) -> Infrastructure:
    """Return an infrastructure with other numbers of machines, of tiers and `TIER/TYPE`s by name.

    Those left out keep theirs. Machines of dedicated tiers are of the queries, not of the moment:
    they stay.
    """

    def resized(name: str, pool: Tier) -> Tier:
        return replace(pool, machines=machines.get(name, pool.machines))

    tiers = (tier if tier.dedicated else tier.changed(resized) for tier in infrastructure.tiers)
    return replace(infrastructure, tiers=tuple(tiers))


@dataclass(slots=True, kw_only=True)
class Emulation:
    """The links that are imitated. Used within the event loop of the deployer.

    Emulated links are waits, made longer or shorter here while plans are deployed, and nobody who
    plans hears of it: so a drift of the network is tried out. Not remembered over a start.
    """

    now: Infrastructure  # with the links that are imitated: at first that which is planned for
    deployer: Deployer  # waits for links
    events: EventLog  # are told of it
    clock: Clock

    async def set_links(self, links: Sequence[Link]) -> Infrastructure:
        """Imitate other links from now on; those left out stay as they are.

        InvalidInput if a link does not exist, or is the network's own; nothing was changed.
        """
        told = {frozenset(link.between): link for link in links}
        emulated = [link.between for link in self.now.links if link.emulated]
        for ends, link in told.items():
            names = ", ".join(map("-".join, emulated)) or "there are none"
            known = ends in map(frozenset, emulated)
            rule = f"must name emulated links ({names})"
            checks.require(known, "links", rule, "-".join(link.between))
        changed = tuple(
            replace(told.get(frozenset(link.between), link), emulated=link.emulated)
            for link in self.now.links
        )
        told_of = [new for new, old in zip(changed, self.now.links, strict=True) if new != old]
        self.now = replace(self.now, links=changed)
        await self.deployer.imitate(self.now)
        if told_of:
            await asyncio.to_thread(self.events.tell, _links_told(told_of, self.clock.timestamp()))
        return self.now


def _links_told(links: Sequence[Link], at: float) -> NewEvent:
    figures: list[dict[str, object]] = [
        {
            "between": list(link.between),
            "bandwidth_mbit_per_s": link.bandwidth_bytes_per_s / BYTES_PER_MBIT,
            "delay_s": link.delay_s,
        }
        for link in links
    ]
    words = ", ".join(
        f"{'-'.join(link.between)} is imitated with "
        f"{link.bandwidth_bytes_per_s / BYTES_PER_MBIT:g} Mbit/s and {link.delay_s:g} s"
        for link in links
    )
    return NewEvent(kind=EventKind.EMULATION, at=at, words=words, data={"links": figures})
