"""The present machines and links: those that the infrastructure states, until changed here.

Machines change while the service runs. The number of each tier is set here and stored over
restarts; the schedule follows within a moment (`api.control.rescheduler` looks every
`reconcile_s`). A query that loses its machines is evicted by name and waits. The emulated links
are separate.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from circinus.api.schemas.base import BYTES_PER_MBIT
from circinus.api.schemas.events import EventKind
from circinus.api.store.events import EventLog
from circinus.api.store.records import NewEvent
from circinus.api.store.schedules import ScheduleStore
from circinus.api.use_cases.deployer import Deployer
from circinus.pipelines import checks
from circinus.pipelines.clock import Clock
from circinus.pipelines.model.endpoints import Usage
from circinus.pipelines.model.infrastructure import Infrastructure, Link
from circinus.pipelines.model.plan import DemandItem, Plan
from circinus.pipelines.model.slo import Slo
from circinus.pipelines.model.tiers import Tier
from circinus.pipelines.ranges import MACHINES
from circinus.planner.deployment.prediction import HIGHEST_UTILISATION
from circinus.scheduler.problem import SHARE, Assignment, Problem, Schedule, Slice


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

        A plan outlives the moment: absent machines may return.
        """
        known = self.store.machines()
        pools = {name: p for tier in self.stated.tiers for name, p in tier.pools.items()}
        most = {name: max(known.get(name, 0), pool.machines) for name, pool in pools.items()}
        return with_machines(self.stated, most)

    def set_machines(self, machines: Mapping[str, int | None]) -> Infrastructure:
        """Set how many machines tiers have from now on; return the infrastructure with them.

        A tier with types has a number for each type, as `TIER/TYPE`. None: as stated again.
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

    Others stay as they are, and so do dedicated tiers, whose machines belong to the queries.
    """

    def resized(name: str, pool: Tier) -> Tier:
        return replace(pool, machines=machines.get(name, pool.machines))

    tiers = (tier if tier.dedicated else tier.changed(resized) for tier in infrastructure.tiers)
    return replace(infrastructure, tiers=tuple(tiers))


@dataclass(slots=True, kw_only=True)
class Emulation:
    """The emulated links. Used within the event loop of the deployer.

    Emulated links are waits, made longer or shorter here while plans are deployed. Planning does
    not learn of it: so it tries out a drift of the network. Not stored over a restart.
    """

    now: Infrastructure  # with the emulated links: at first the one that is planned for
    deployer: Deployer  # waits for links
    events: EventLog  # stores the changes
    clock: Clock

    async def set_links(self, links: Sequence[Link]) -> Infrastructure:
        """Emulate other links from now on; those left out stay as they are.

        InvalidInput if a link does not exist, or is the network's own; nothing was changed.
        """
        requested = {frozenset(link.between): link for link in links}
        emulated = [link.between for link in self.now.links if link.emulated]
        for ends, link in requested.items():
            names = ", ".join(map("-".join, emulated)) or "there are none"
            known = ends in map(frozenset, emulated)
            rule = f"must name emulated links ({names})"
            checks.require(known, "links", rule, "-".join(link.between))
        changed = tuple(
            replace(requested.get(frozenset(link.between), link), emulated=link.emulated)
            for link in self.now.links
        )
        changed_links = [
            new for new, old in zip(changed, self.now.links, strict=True) if new != old
        ]
        self.now = replace(self.now, links=changed)
        await self.deployer.emulate(self.now)
        if changed_links:
            await asyncio.to_thread(
                self.events.tell, _links_event(changed_links, self.clock.timestamp())
            )
        return self.now


def _links_event(links: Sequence[Link], at: float) -> NewEvent:
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


_SECONDS_PER_MINUTE = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointLimit:
    """What an endpoint lets through in a minute, of one kind."""

    tier: str  # that it is for the scheduler
    endpoint: str  # name
    kind: str  # `requests` or `tokens`
    per_minute: int  # the most, `>= 1`

    @property
    def words(self) -> str:
        """The limit as part of a sentence."""
        return f"{self.per_minute} {self.kind} per minute of endpoint {self.endpoint}"

    def used_per_minute(self, one: Usage, requests_per_s: float) -> float:
        """Return its use by requests at a rate, each with a mean use."""
        each = one.calls if self.kind == "requests" else one.tokens
        return each * requests_per_s * _SECONDS_PER_MINUTE


def endpoint_limits(infrastructure: Infrastructure) -> tuple[EndpointLimit, ...]:
    """Return the limits in requests and tokens of all endpoints, in their order."""
    taken = {tier.name for tier in infrastructure.tiers}
    limits: list[EndpointLimit] = []
    for endpoint in infrastructure.endpoints:
        rates = {
            "requests": endpoint.limits.requests_per_minute,
            "tokens": endpoint.limits.tokens_per_minute,
        }
        for kind, most in rates.items():
            if most is not None:
                # Not called as the endpoint is: that may be as long as a name can be.
                name = f"call-limit-{len(limits)}"
                while name in taken:
                    name += "-"
                limits.append(
                    EndpointLimit(tier=name, endpoint=endpoint.name, kind=kind, per_minute=most)
                )
    return tuple(limits)


def shared_tiers(infrastructure: Infrastructure) -> tuple[Tier, ...]:
    """Return all that queries share: the tiers, and a tier of one machine for every limit."""
    limits = (Tier(name=limit.tier) for limit in endpoint_limits(infrastructure))
    return (*infrastructure.tiers, *limits)


def limits_in_words(infrastructure: Infrastructure) -> dict[str, str]:
    """Return what each tier stands for that is a limit, see `Problem.limits`."""
    return {limit.tier: limit.words for limit in endpoint_limits(infrastructure)}


def require_tiers(plan: Plan, infrastructure: Infrastructure) -> None:
    """Raise InvalidInput unless a stored plan's tiers are there, and remote as they were."""
    known = infrastructure.present(plan.deployment.tiers)
    for tier in plan.deployment.tiers:
        names = ", ".join(each.name for each in infrastructure.tiers)
        rule = f"must name tiers of the infrastructure ({names}); replan the query"
        checks.require(tier in known, f"plan {plan.id}.placement", rule, tier)
        was = "remote" if tier in plan.deployment.remote else "a tier with machines"
        rule = f"must be {was}, as when it was planned; replan the query"
        alike = known[tier].remote == (tier in plan.deployment.remote)
        checks.require(alike, f"plan {plan.id}.placement", rule, tier)


def demand_on_limits(
    plan: Plan, infrastructure: Infrastructure, slo: Slo
) -> tuple[DemandItem, ...]:
    """Return which part of each limit a plan needs, above 1 where it needs more than there is.

    One whose requests are sequential needs none: their rate is unknown. InvalidInput if it calls
    an unknown endpoint.
    """
    if plan.calls is None:
        return ()
    names = [each.name for each in infrastructure.endpoints]
    for name in plan.calls.per_request:
        checks.among(f"plan {plan.id}.calls", name, names)
    rate = plan.requests_per_s or 0.0
    most = HIGHEST_UTILISATION if slo.throughput_per_s is None else 1.0
    parts = {
        limit.tier: limit.used_per_minute(one, rate) / (most * limit.per_minute)
        for limit in endpoint_limits(infrastructure)
        if (one := plan.calls.per_request.get(limit.endpoint)) is not None
    }
    return tuple(
        DemandItem(tier, min(part, SHARE.most))
        for tier, part in parts.items()
        if part >= SHARE.least
    )


def with_limits(
    running: Mapping[str, Assignment], problem: Problem
) -> Iterator[tuple[str, Assignment]]:
    """Yield what runs by query, with the parts of limits that its plans need now."""
    plans = {c.query_id: {p.plan_id: p for p in c.plans} for c in problem.candidates}
    for query_id, at in running.items():
        plan = plans.get(query_id, {}).get(at.plan_id)
        parts = () if plan is None else plan.demand
        more = [Slice(i.tier, 0, i.share) for i in parts if i.tier in problem.limits]
        yield query_id, replace(at, machines=(*at.machines, *more)) if more else at


def on_machines(schedule: Schedule, limits: Mapping[str, str]) -> Schedule:
    """Return a schedule with the slices of machines alone; its utilisation has limits, too."""
    if not limits:
        return schedule
    return replace(
        schedule,
        assignments=tuple(
            replace(a, machines=tuple(s for s in a.machines if s.tier not in limits))
            for a in schedule.assignments
        ),
    )
