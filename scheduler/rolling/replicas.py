"""More replicas while more requests come than a plan is for, within what machines have left.

A plan has as many replicas as the expected rate needs; they are its demand, and stay. Where
requests come faster for a while, a query gets extra replicas on what the schedule leaves free. The
one rule: extras never count as running. A policy does not see them, so they displace nobody and
keep nobody waiting; they are worked out anew after every schedule, and what no longer fits goes.

| symbol | meaning |
| --- | --- |
| x | load: arrivals per second over the rate that the plan is for |
| n, w | replicas that a plan has on a tier, and those it wants: w = max(n, ceil(n x)) |

Rates are counted, so x is noisy. The load in force rises to x once it was exceeded for `up_s`.
Once x stayed below it for `down_s` it falls, in one step: to the largest x of that time but for
its first `span_s`, in which earlier arrivals count in the rate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, inf

from circinus.pipelines import checks
from circinus.pipelines.ranges import Range
from circinus.scheduler.compiled.placement import FreeShares
from circinus.scheduler.problem import (
    CENT,
    Assignment,
    Candidate,
    Problem,
    Slice,
    held_by_tenants,
    parts_of,
    quota_parts,
    spent_usd_per_hour,
)

REPLICAS = Range(1, 1000)
"""That may be requested by number."""
_NO_REPLICA = 0.1
"""Of a replica: so little more is noise of counting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSettings:
    """How soon replicas follow the rate."""

    # load from which extras are wanted, `>= 1`. 1.25: at 5 requests a second, ten seconds of
    # arrivals as planned count more once in 25 times
    noticeable: float = 1.25
    # load that is followed at most, `> noticeable`. More means that the plan is not made for
    # the rate: that takes another plan, not all the machines that are free
    most: float = 8.0
    up_s: float = 3.0  # how long more must come, `>= 0`. The rate is over ten seconds already
    down_s: float = 60.0  # how long less must come, `>= 0`. A start costs seconds, idling little
    span_s: float = 10.0  # that the rate is counted over, `>= 0`

    def __post_init__(self) -> None:
        checks.require(self.noticeable >= 1, "noticeable", "must be >= 1", self.noticeable)
        fits = self.most > self.noticeable
        checks.require(fits, "most", f"must be > {self.noticeable:g}", self.most)
        checks.non_negative("up_s", self.up_s)
        checks.non_negative("down_s", self.down_s)
        checks.non_negative("span_s", self.span_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowedLoad:
    """The load of a query that replicas are for, and what seems to come of it."""

    in_force: float = 1.0  # `>= 1`
    above_since: float | None = None  # since when it is exceeded; None: it is not
    # (moment, load) of the looks of the last `down_s` that no later one reached, so falling
    peaks: tuple[tuple[float, float], ...] = ()

    def followed(self, load: float, now: float, settings: ReplicaSettings) -> FollowedLoad:
        """Return the load after one observation, x in the module."""
        x = min(load, settings.most) if load > settings.noticeable else 1.0
        before = self.peaks or ((now, self.in_force),)
        peaks = (*((t, y) for t, y in before if y > x and now - t < settings.down_s), (now, x))
        if x > self.in_force:
            since = now if self.above_since is None else self.above_since
            if now - since >= settings.up_s:
                return FollowedLoad(in_force=x, peaks=peaks)
            return FollowedLoad(in_force=self.in_force, above_since=since, peaks=peaks)
        if peaks[0][1] < self.in_force:
            settled_s = settings.down_s - settings.span_s
            recent = [y for t, y in peaks if now - t < settled_s] or [x]
            return FollowedLoad(in_force=max(recent), peaks=peaks)
        return FollowedLoad(in_force=self.in_force, peaks=peaks)


def followed(
    before: Mapping[str, FollowedLoad],
    load: Mapping[str, float],
    now: float,
    settings: ReplicaSettings,
) -> dict[str, FollowedLoad]:
    """Return the loads after one observation; a query without an observation is dropped."""
    return {q: before.get(q, FollowedLoad()).followed(x, now, settings) for q, x in load.items()}


def wanted_extras(replicas: int, load: float) -> int:
    """Return how many replicas a tier of a plan should have beyond its own."""
    return max(0, ceil(replicas * load - _NO_REPLICA) - replicas)


def load_for(replicas: int, own: int) -> float:
    """Return the load at which a plan with `own` replicas on a tier wants so many there.

    Tiers with fewer of its own get them in proportion. Less than `own` is no load: a plan's own
    replicas are its demand, and stay.
    """
    return max(replicas / own, 1.0)


# deviates: extra-replicas
def granted(
    problem: Problem,
    assignments: Sequence[Assignment],
    loads: Mapping[str, float],  # query -> load in force; 1 where it is left out
    before: Mapping[str, Assignment],  # extras that there are, by query: they stay where possible
    most_usd_per_hour: Mapping[str, float],  # what extras of a query may cost; left out: any
) -> dict[str, Assignment]:
    """Return the extras of the queries that get some, on what a valid schedule leaves free.

    Queries of higher priority, then of more weight, come first. Only shared tiers have room for
    extras, and tenants keep to their quotas with them, and all to the limit of dollars.
    """
    ground = _Left(problem, assignments)
    extras = {}
    for candidate, at in _by_worth(problem.candidates, assignments):
        wishes = _wishes(at, loads.get(at.query_id, 1.0), ground.free)
        if not wishes:
            continue
        held = before.get(at.query_id)
        known = held.machines if held is not None and held.plan_id == at.plan_id else ()
        usd = most_usd_per_hour.get(at.query_id, inf)
        slices = ground.extras(candidate.tenant, wishes, known, usd)
        if slices:
            extras[at.query_id] = replace(at, machines=slices)
    return extras


def _by_worth(
    candidates: Iterable[Candidate], assignments: Sequence[Assignment]
) -> list[tuple[Candidate, Assignment]]:
    served = {a.query_id: a for a in assignments}
    pairs = [(c, served[c.query_id]) for c in candidates if c.query_id in served]
    return sorted(pairs, key=lambda e: (-e[0].priority, -e[0].weight, e[0].query_id))


def _wishes(
    at: Assignment, load: float, free: Mapping[str, FreeShares]
) -> list[tuple[str, float]]:
    """Return (tier, share) of each extra wanted, the tiers in turn: one alone may help nobody."""
    replicas = Counter((s.tier, s.share) for s in at.machines if s.tier in free)
    room = {(tier, share): free[tier].holds(parts_of(share)) for tier, share in replicas}
    # A rate may be tiny, and the load on it more than all machines could take.
    left = {
        item: min(most, wanted_extras(replicas[item], min(load, 1.0 + most)))
        for item, most in room.items()
    }
    rounds = range(max(left.values(), default=0))
    return [item for turn in rounds for item, count in left.items() if turn < count]


class _Left:
    """What a schedule leaves of machines and quotas, while extras take of it."""

    def __init__(self, problem: Problem, assignments: Sequence[Assignment]) -> None:
        limits = problem.limits  # extras answer what comes, calls or not: gates keep to limits
        shared = [t for t in problem.tiers if not t.dedicated and t.name not in limits]
        self.free = {tier.name: FreeShares(tier.machines) for tier in shared}
        for tier, machine, share in (s for a in assignments for s in a.machines):
            if tier in self.free:
                self.free[tier].take(machine, parts_of(share))
        self._price = {tier.name: tier.price_usd_per_hour for tier in shared}
        self._tiers = {tier.name: tier for tier in shared}
        self._rented = {(s.tier, s.machine) for a in assignments for s in a.machines}
        left = problem.most_usd_per_hour - spent_usd_per_hour(problem, assignments)
        self._usd_left = max(left, 0.0) + CENT
        held = held_by_tenants(problem, assignments)
        self._quota = {
            (tenant, tier.name): quota_parts(problem, tenant, tier) - held[tenant, tier.name]
            for tenant in problem.quotas
            for tier in shared
        }

    def _pays(self, tier: str, machine: int) -> bool:
        """Pay for a machine unless it is rented already; False: no dollars are left for it."""
        usd = self._tiers[tier].price_of(machine)
        if (tier, machine) in self._rented:
            return True
        if usd > self._usd_left:
            return False
        self._rented.add((tier, machine))
        self._usd_left -= usd
        return True

    def extras(
        self,
        tenant: str,
        wishes: Iterable[tuple[str, float]],
        known: Sequence[Slice],
        usd_per_hour: float,
    ) -> tuple[Slice, ...]:
        """Take what fits of the wishes, on machines that are known first, for so much money."""
        slices, there = [], list(known)
        for tier, share in wishes:
            parts, usd = parts_of(share), share * self._price[tier]
            if parts > self._quota.get((tenant, tier), parts) or usd > usd_per_hour:
                continue
            mine = (s for s in there if (s.tier, s.share) == (tier, share))
            known_slice = next((s for s in mine if self.free[tier].on(s.machine) >= parts), None)
            machine = self.free[tier].best(parts) if known_slice is None else known_slice.machine
            if machine is None or not self._pays(tier, machine):
                continue
            if known_slice is not None:
                there.remove(known_slice)
            self.free[tier].take(machine, parts)
            if (tenant, tier) in self._quota:
                self._quota[tenant, tier] -= parts
            usd_per_hour -= usd
            slices.append(Slice(tier, machine, share))
        return tuple(slices)
