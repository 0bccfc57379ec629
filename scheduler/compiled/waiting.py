"""Why a query waits and what would let it in, in words."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from types import MappingProxyType
from typing import NamedTuple

from circinus.pipelines.model.plan import DemandItem
from circinus.pipelines.model.tiers import Tier
from circinus.scheduler.compiled.placement import Placement, Room, fit
from circinus.scheduler.problem import (
    PARTS,
    Assignment,
    Candidate,
    PlanOption,
    Problem,
    aggregate_parts,
    held_by_tenants,
    parts_of,
    quota_parts,
    spent_usd_per_hour,
)


def reasons(problem: Problem, assignments: Sequence[Assignment], room: Room) -> dict[str, str]:
    """Return why queries without one of these valid assignments wait; `room` is what is left."""
    held = held_by_tenants(problem, assignments)
    spent = _Spent(0.0, ())
    if problem.most_usd_per_hour < inf:
        rented = {(s.tier, s.machine) for a in assignments for s in a.machines}
        spent = _Spent(spent_usd_per_hour(problem, assignments), rented)
    served = {assignment.query_id for assignment in assignments}
    reason_of = {}
    for candidate in problem.candidates:
        if candidate.query_id not in served:
            before = problem.running.get(candidate.query_id)
            lost = f"Its plan {before.plan_id} lost its place. " if before else ""
            reason_of[candidate.query_id] = lost + _why(problem, candidate, room, held, spent)
    return reason_of


class _Spent(NamedTuple):
    """What a schedule spends."""

    usd_per_hour: float
    rented: Container[tuple[str, int]]  # (tier, machine) that hold anything


def _why(
    problem: Problem,
    candidate: Candidate,
    room: Room,
    held: Mapping[tuple[str, str], int],
    spent: _Spent,
) -> str:
    """Return the reason: quota or money where only that is in the way, else machines, or both."""
    if candidate.tenant not in problem.quotas and problem.most_usd_per_hour == inf:
        return why_waiting(candidate, room, problem.tiers, problem.limits)
    beyond = [_beyond_quota(problem, candidate.tenant, plan, held) for plan in candidate.plans]
    fits = [not fit(plan.demand, room).missing for plan in candidate.plans]
    within = zip(candidate.plans, beyond, fits, strict=True)
    affordable = [plan for plan, words, has_room in within if words is None and has_room]
    if affordable:
        return _too_dear(problem, affordable, room, spent)
    for words, has_room in zip(beyond, fits, strict=True):
        if words is not None and has_room:
            return words
    why = why_waiting(candidate, room, problem.tiers, problem.limits)
    return f"{why} Besides: {beyond[0]}" if all(beyond) else why


def _too_dear(problem: Problem, plans: Sequence[PlanOption], room: Room, spent: _Spent) -> str:
    """Return how far the cheapest of plans that find room is above the limit of dollars."""
    tiers = {tier.name: tier for tier in problem.tiers if not tier.dedicated}

    def added(plan: PlanOption) -> float:
        slices = fit(plan.demand, room).slices.values()
        fresh = {(s.tier, s.machine) for s in slices if s.tier in tiers}
        opened = (spot for spot in fresh if spot not in spent.rented)
        rent = sum(tiers[tier].price_of(machine) for tier, machine in opened)
        return rent + plan.calls_usd_per_hour

    usd, plan_id = min((added(plan), plan.plan_id) for plan in plans)
    over = spent.usd_per_hour + usd - problem.most_usd_per_hour
    return (
        f"Its plan {plan_id} would add {usd:.4g} $/h of machines and calls to the "
        f"{spent.usd_per_hour:.4g} that are spent, but at most {problem.most_usd_per_hour:.4g} "
        f"may be. What would let it in: a limit {over:.4g} $/h higher, or room coming free on "
        "machines that are rented."
    )


def _beyond_quota(
    problem: Problem, tenant: str, plan: PlanOption, held: Mapping[tuple[str, str], int]
) -> str | None:
    """Return what of a plan is above its tenant's quota, in words; None when nothing is."""
    if tenant not in problem.quotas:
        return None
    for tier in problem.tiers:
        needs = aggregate_parts(plan.demand, (tier.name,))
        most = quota_parts(problem, tenant, tier)
        over = held.get((tenant, tier.name), 0) + needs - most
        if needs and over > 0 and not tier.dedicated:
            back = f"another query of {tenant} giving back {over / PARTS:g}"
            way = "more machines" if needs > most else back
            return (
                f"Its plan {plan.plan_id} needs {needs / PARTS:g} machines of {tier.name}, "
                f"but tenant {tenant} may hold {most / PARTS:g} and would hold "
                f"{over / PARTS:g} more. What would let it in: {way} "
                f"of {tier.name}, or a larger quota."
            )
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortage:
    """What a plan lacks on one tier."""

    tier: Tier
    items: tuple[float, ...]  # shares that find no room, the largest first, at least one
    left: int  # parts left on the emptiest machine when the first of them was tried
    limit: str | None = None  # of an endpoint that the tier stands for, in words; None: none

    @property
    def machines(self) -> int | None:
        """How many more machines would hold the items; None when no number would."""
        parts = [parts_of(share) for share in self.items]
        if self.tier.dedicated or parts[0] > PARTS:
            return None
        fresh = Placement[int]([len(parts)], {})
        fresh.place(0, 0, tuple((0, size) for size in parts))
        return len(set(fresh.at[0].machines))

    @property
    def fact(self) -> str:
        """What is needed and what there is, as part of a sentence."""
        if self.limit is not None:
            left = f"{self.left / PARTS:g} is left: {self._gap:g} is missing"
            return f"{self.items[0]:g} of the {self.limit}, but {left}"
        many = f"{len(self.items)} times " if len(self.items) > 1 else ""
        needs = f"{many}{self.items[0]:g} of one machine of {self.tier.name}"
        if self.tier.machines == 0:
            return f"{needs}, which has no machines"
        where = "of the query's own" if self.tier.dedicated else "there"
        free = f"the most free on one {where} is {self.left / PARTS:g}"
        return f"{needs}, but {free}: {self._gap:g} is missing"

    @property
    def remedy(self) -> str:
        """What would end it, as part of a sentence."""
        name = self.tier.name
        if self.limit is not None:
            way = "" if self.items[0] > 1 else f"others asking for {self._gap:g} less, or "
            return f"{way}a higher limit of {self.limit}"
        if self.machines is None:
            return f"a plan that fits one machine of {name}"
        more = f"{self.machines} more machine{'s' if self.machines > 1 else ''} of {name}"
        if len(self.items) > 1 or self.tier.machines == 0:
            return more
        return f"{self._gap:g} coming free on the emptiest machine of {name} (or {more})"

    @property
    def _gap(self) -> float:
        return (parts_of(self.items[0]) - self.left) / PARTS


def shortages(
    plan: PlanOption,
    room: Room,
    tiers: Mapping[str, Tier],
    limits: Mapping[str, str] = MappingProxyType({}),  # see `Problem.limits`
) -> tuple[Shortage, ...]:
    """Return what a plan lacks, one shortage per tier; empty when it fits."""
    lacking: dict[str, list[tuple[DemandItem, int]]] = {}
    for item, left in fit(plan.demand, room).missing:
        lacking.setdefault(item.tier, []).append((item, left))
    return tuple(
        Shortage(
            tier=tiers[name],
            items=tuple(i.share for i, _ in missing),
            left=missing[0][1],
            limit=limits.get(name),
        )
        for name, missing in lacking.items()
    )


def why_waiting(
    candidate: Candidate,
    room: Room,
    tiers: Sequence[Tier],
    limits: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Return why none of a query's plans fits, by the least demanding that ever could."""
    by_name = {tier.name: tier for tier in tiers}
    shared = frozenset(tier.name for tier in tiers if not tier.dedicated)
    plans = sorted(
        candidate.plans,
        key=lambda p: (aggregate_parts(p.demand, shared), p.cost_usd_per_hour, p.plan_id),
    )
    pairs = ((plan, shortages(plan, room, by_name, limits)) for plan in plans)
    never = (plans[0], shortages(plans[0], room, by_name, limits))
    plan, lacks = next((t for t in pairs if all(one.machines is not None for one in t[1])), never)
    facts = " and ".join(lack.fact for lack in lacks)
    remedies = " and ".join(lack.remedy for lack in lacks)
    which = "Its least demanding plan" if len(plans) > 1 else "Its only plan"
    return f"{which} {plan.plan_id} needs {facts}. What would let it in: {remedies}."
