"""Our policy for limited machines: prices first, then packing, then local improvement.

1. Prices of machines are the duals of the linear relaxation (`scheduler.policies.prices`): a
   scarce tier is dear, an idle one free. Circinus 4.3 adds up shares of unlike tiers instead.
2. Queries are placed by benefit per charge, each with the least charged of its plans that
   fits, on the fullest machines that hold it (`scheduler.policies.filling`).
3. Swaps, ejections and repackings, within a limit (`scheduler.policies.improvement`).

There is no integer program inside. What runs stays on its machines, unless migration is
allowed: then a query may be moved, or stopped for others, when that wins more than
`Migration.price` of its benefit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from circinus.pipelines import checks
from circinus.pipelines.clock import Clock, SystemClock
from circinus.pipelines.model.profile import FloatArray
from circinus.scheduler.compiled.feasibility import Compiled, PlanArrays
from circinus.scheduler.compiled.placement import Placed, Placement
from circinus.scheduler.policies.filling import by_rate, charges, fill, keep_running
from circinus.scheduler.policies.improvement import (
    Effort,
    Improver,
    RandomDraws,
    Stakes,
    options_of,
    ruin_and_recreate,
)
from circinus.scheduler.policies.prices import Prices, dual_prices
from circinus.scheduler.problem import Problem, Schedule

_IDLE_STEPS_EACH = 300
"""Steps without a new best, for each placed query that may be moved, after which none follows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """Leave to move or stop what runs."""

    # what a move costs, in parts of the query's benefit, `>= 0`: the service that users miss
    # meanwhile. Stopping a query costs that and its benefit
    price: float = 0.2

    def __post_init__(self) -> None:
        checks.non_negative("migration.price", self.price)


@dataclass(frozen=True, slots=True, kw_only=True)
class Priced:
    """A `SchedulingPolicy`: dual prices, packing on single machines, local improvement."""

    effort: Effort = field(default_factory=Effort)  # limits of the local improvement
    migration: Migration | None = None  # None: what runs is not moved
    reach: int = 2000  # queries that the improvement looks at, the most hopeful first
    clock: Clock = field(default_factory=SystemClock)  # of the time limit
    small_steps: ClassVar[bool] = True

    def __post_init__(self) -> None:
        checks.positive("reach", self.reach)

    def schedule(self, problem: Problem) -> Schedule:
        """Return a valid schedule that mentions every candidate once."""
        compiled = Compiled.of(problem)
        arrays, placement = compiled.arrays, compiled.placement()

        def keep(charge: FloatArray) -> None:
            if problem.running:
                with np.errstate(divide="ignore", over="ignore"):
                    rate = arrays.benefit[arrays.owner] / charge
                keep_running(compiled, placement, np.lexsort((charge, -rate)).tolist())

        self.of_arrays(arrays, placement, keep, compiled.running())
        return compiled.schedule(placement)

    def of_arrays(
        self,
        arrays: PlanArrays,
        placement: Placement[int],
        keep: Callable[[FloatArray], None] = lambda charge: None,
        home: Mapping[int, Placed] | None = None,
    ) -> Prices:
        """Fill a placement; return the prices and the bound that they prove.

        `keep` places what runs, given the charge of each plan; `home` is where queries run that
        could go on there. Whoever is in the placement already stays.
        """
        until = self.clock.now() + self.effort.time_limit_s
        prices = dual_prices(arrays)
        charge = charges(arrays, prices.per_machine)
        keep(charge)
        pinned = set() if self.migration is not None else set(placement.at)
        fill(arrays, placement, charge, prices.favourite)
        if self.effort.steps and self.clock.now() < until:
            stakes = self._stakes(arrays, placement, charge, pinned, home or {})
            rng = np.random.Generator(np.random.PCG64(self.effort.seed))
            improver = Improver(placement, stakes, RandomDraws(rng))
            # Where nearly all that is placed runs already and stays, few changes are possible.
            movable = sum(query in placement.at for query in stakes.benefit)
            idle_steps = min(self.effort.idle_steps, _IDLE_STEPS_EACH * movable)
            effort = replace(self.effort, idle_steps=idle_steps)
            ruin_and_recreate(placement, effort, self.clock, until, improver.step)
            fill(arrays, placement, charge)
        return prices

    def _stakes(
        self,
        arrays: PlanArrays,
        placement: Placement[int],
        charge: FloatArray,
        pinned: set[int],
        home: Mapping[int, Placed],
    ) -> Stakes:
        """Return the queries that the improvement may move: those that hold or want machines."""
        fixed = pinned | {q for q, placed in placement.at.items() if not placed.items}
        movable = [q for q in by_rate(arrays, charge).tolist() if q not in fixed]
        moved = movable[: self.reach]
        return Stakes(
            benefit={q: float(arrays.benefit[q]) for q in moved},
            options=options_of(arrays, charge, moved),
            home={q: home[q] for q in moved if q in home} if self.migration else {},
            move_price=self.migration.price if self.migration else 0.0,
        )
