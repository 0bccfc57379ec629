"""How good a schedule is: its goodput, what it rents, and the bounds on both.

The one rule: what is said of a schedule follows from problem and schedule, whoever made it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import inf

import numpy as np

from circinus.scheduler.compiled.feasibility import Compiled, benefits
from circinus.scheduler.ilp import Ilp
from circinus.scheduler.policies.prices import dual_prices
from circinus.scheduler.problem import (
    Objective,
    Problem,
    Schedule,
    Slice,
    called_usd_per_hour,
)
from circinus.scheduler.rolling.ageing import Preemption, preemptions

MOST_VARIABLES = 15_000
"""Up to which the integer program is solved: to build it takes two seconds then."""
TIME_LIMIT_S = 2.0
"""Of the integer program: whoever reads the schedule waits for it, once for each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeastCost:
    """What serving all queries costs at least, machines limited and dollars not (Circinus B.1)."""

    usd_per_hour: float  # no schedule costs less; infinite: none serves all on these machines
    proven: bool  # whether it is the optimum of the integer program


@dataclass(frozen=True, slots=True, kw_only=True)
class Rent:
    """What a schedule rents, and what serving all costs at least."""

    machines: tuple[tuple[str, int], ...]  # (shared tier, machine) that hold anything
    machines_usd_per_hour: float  # of those, as whole machines
    calls_usd_per_hour: float
    least: LeastCost
    most_usd_per_hour: float  # of machines and calls; infinite: any
    serves_all: bool

    @property
    def usd_per_hour(self) -> float:
        """What machines and calls cost."""
        return self.machines_usd_per_hour + self.calls_usd_per_hour

    @property
    def gap(self) -> float | None:
        """Part by which it costs more than the bound, `>= 0`; None: it does not serve all."""
        if not self.serves_all:
            return None
        least = self.least.usd_per_hour
        return max(0.0, self.usd_per_hour / least - 1) if least > 0 else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessment:
    """How good a schedule is."""

    # sum of the benefits of the live queries that it serves: their weights, where all have the
    # same priority
    goodput: float
    bound: float  # no schedule on these machines serves more (linear relaxation)
    displaced: tuple[Preemption, ...] = ()  # queries that are stopped or moved, and for which ones
    # query that is served -> what its calls cost
    calls_usd_per_hour: Mapping[str, float] = field(default_factory=dict)
    rent: Rent | None = None  # None: machines are not rented

    @property
    def objective(self) -> Objective:
        """What the schedule seeks."""
        return Objective.GOODPUT if self.rent is None else Objective.COST

    @property
    def gap(self) -> float:
        """Part of the bound that is not reached, in [0, 1]."""
        return max(0.0, 1 - self.goodput / self.bound) if self.bound > 0 else 0.0


def assess(
    problem: Problem,
    schedule: Schedule,
    objective: Objective = Objective.GOODPUT,
    extras: Iterable[Slice] = (),  # of further replicas, which hold machines, too
) -> Assessment:
    """Return how good a schedule is for a problem."""
    worth = benefits(problem.candidates)
    return Assessment(
        goodput=sum(worth.get(query, 0.0) for query in schedule.by_query),
        bound=dual_prices(Compiled.of(problem).arrays).bound,
        displaced=preemptions(problem, schedule),
        calls_usd_per_hour={
            c.query_id: plan.calls_usd_per_hour
            for c in problem.candidates
            if (at := schedule.by_query.get(c.query_id)) is not None
            and (plan := c.plan(at.plan_id)) is not None
        },
        rent=rent_of(problem, schedule, extras) if objective is Objective.COST else None,
    )


def rent_of(problem: Problem, schedule: Schedule, extras: Iterable[Slice] = ()) -> Rent:
    """Return what a schedule rents and calls, with extra replicas, beside the least for all."""
    slices = (*(s for a in schedule.assignments for s in a.machines), *extras)
    limits = problem.limits
    shared = {t.name: t for t in problem.tiers if not t.dedicated and t.name not in limits}
    held = sorted({(s.tier, s.machine) for s in slices if s.tier in shared})
    return Rent(
        machines=tuple(held),
        machines_usd_per_hour=sum(shared[tier].price_of(machine) for tier, machine in held),
        most_usd_per_hour=problem.most_usd_per_hour,
        calls_usd_per_hour=called_usd_per_hour(problem, schedule.assignments),
        least=least_usd_per_hour(problem),
        serves_all=len(schedule.assignments) == len(problem.candidates),
    )


def least_usd_per_hour(problem: Problem, time_limit_s: float = TIME_LIMIT_S) -> LeastCost:
    """Return the least that serving all costs: B.1's integer program, moving whatever runs.

    The better of what that proves in time and of the linear relaxation, which alone is looked at
    beyond `MOST_VARIABLES`. InvalidInput if no solver is installed.
    """
    relaxed = relaxed_usd_per_hour(problem)
    if relaxed == inf or _variables(Compiled.of(problem)) > MOST_VARIABLES:
        return LeastCost(usd_per_hour=relaxed, proven=relaxed == inf)
    unlimited = replace(problem, most_usd_per_hour=inf)
    program = Ilp(objective=Objective.COST, time_limit_s=time_limit_s, moves=True)
    solved = program.solve(unlimited)
    return LeastCost(usd_per_hour=max(relaxed, solved.bound), proven=solved.proven)


def relaxed_usd_per_hour(problem: Problem) -> float:
    """Return what machines in parts would cost for all queries; infinite: one has no plan."""
    compiled = Compiled.of(problem)
    if len(compiled.queries) < len(problem.candidates):
        return inf
    if not compiled.queries:
        return 0.0
    # A tier of unlike types costs its cheapest type at least.
    price = [
        min((kind.price_usd_per_hour for kind in tier.types), default=tier.price_usd_per_hour)
        for tier in compiled.tiers
    ]
    arrays = compiled.arrays
    least, _ = arrays.least(arrays.usage @ price + arrays.calls_usd_per_hour)
    return float(least.sum())


def _variables(compiled: Compiled) -> int:
    """Return at most how many variables the program has: plans, and sizes on machines."""
    arrays = compiled.arrays
    n_plans = len(arrays.owner)
    if not n_plans:
        return 0
    plan = np.repeat(np.arange(n_plans), np.diff(arrays.item_first))  # of each item
    count = n_plans
    for m, tier in enumerate(compiled.tiers):
        on = arrays.item_tier == m
        items = np.maximum.reduceat(np.bincount(plan[on], minlength=n_plans), arrays.first[:-1])
        sizes = len(np.unique(arrays.item_parts[on]))
        count += sizes * min(tier.machines, int(items.sum()))
    return count
