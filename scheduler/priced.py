"""Our policy for limited machines: prices first, then packing, then local improvement.

1. Prices of machines are the duals of the linear relaxation (`scheduler.prices`): a scarce
   tier is dear, an idle one free. Circinus 4.3 adds up shares of unlike tiers instead.
2. Queries are placed by benefit per charge, each with the least charged of its plans that
   fits, on the fullest machines that hold it (`scheduler.filling`).
3. Swaps, ejections and repackings, within a limit (`scheduler.improvement`).

There is no integer program inside. What runs stays on its machines, unless migration is
allowed: then a query may be moved, or stopped for others, when that wins more than
`Migration.price` of its benefit.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from pipelines import checks
from pipelines.clock import Clock, SystemClock
from scheduler.admission import keep_running
from scheduler.arrays import FloatArray, PlanArrays
from scheduler.compiled import Compiled
from scheduler.filling import charges, fill
from scheduler.improvement import Draws, Effort, Improver, Stakes, options_of
from scheduler.placement import Placed, Placement
from scheduler.prices import Prices, dual_prices
from scheduler.problem import Problem, Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """Leave to move or stop what runs.

    Attributes:
        price: What a move costs, in parts of the query's benefit, `>= 0`: the service that users
            miss meanwhile. Stopping a query costs that and its benefit.
    """

    price: float = 0.2

    def __post_init__(self) -> None:
        checks.non_negative("migration.price", self.price)


@dataclass(frozen=True, slots=True, kw_only=True)
class Priced:
    """A `SchedulingPolicy`: dual prices, packing on single machines, local improvement.

    Attributes:
        effort: Limits of the local improvement.
        migration: None: what runs is not moved.
        reach: Queries that the improvement looks at, the most hopeful first.
        clock: Of the time limit.
    """

    effort: Effort = field(default_factory=Effort)
    migration: Migration | None = None
    reach: int = 2000
    clock: Clock = field(default_factory=SystemClock)

    def __post_init__(self) -> None:
        checks.positive("reach", self.reach)

    def schedule(self, problem: Problem) -> Schedule:
        """Give a valid schedule that mentions every candidate once."""
        compiled = Compiled.of(problem)
        until = self.clock.now() + self.effort.time_limit_s
        prices = dual_prices(compiled.arrays)
        charge = charges(compiled.arrays, prices.per_machine)
        placement = compiled.placement()
        home = compiled.running()
        if problem.running:
            keep_running(compiled, placement, _by_rate(compiled.arrays, charge))
        pinned = set() if self.migration is not None else set(placement.at)
        fill(compiled.arrays, placement, charge, prices.favourite)
        stakes = self._stakes(compiled.arrays, placement, charge, pinned, home)
        self._improve(placement, stakes, until)
        fill(compiled.arrays, placement, charge)
        return compiled.schedule(placement)

    def of_arrays(self, arrays: PlanArrays, placement: Placement) -> Prices:
        """Fill a placement; give the prices and the bound that they prove.

        Args:
            arrays: All plans.
            placement: Empty, or of queries that stay where they are; changed.
        """
        until = self.clock.now() + self.effort.time_limit_s
        prices = dual_prices(arrays)
        charge = charges(arrays, prices.per_machine)
        pinned = set(placement.at)
        fill(arrays, placement, charge, prices.favourite)
        if self.effort.steps and self.clock.now() < until:
            self._improve(placement, self._stakes(arrays, placement, charge, pinned, {}), until)
            fill(arrays, placement, charge)
        return prices

    def _improve(self, placement: Placement, stakes: Stakes, until: float) -> None:
        rng = np.random.Generator(np.random.PCG64(self.effort.seed))
        left = replace(self.effort, time_limit_s=max(0.0, until - self.clock.now()))
        Improver(placement, stakes, Draws(rng)).run(left, self.clock.now)

    def _stakes(
        self,
        arrays: PlanArrays,
        placement: Placement,
        charge: FloatArray,
        pinned: set[int],
        home: dict[int, Placed],
    ) -> Stakes:
        """Give the queries that the improvement may move: those that hold or want machines."""
        least, _ = arrays.least(charge)
        with np.errstate(divide="ignore"):
            rate = arrays.benefit / least
        order = np.lexsort((-arrays.benefit, -rate)).tolist()
        free = {q for q, placed in placement.at.items() if not placed.items}
        moved = [q for q in order if q not in pinned and q not in free][: self.reach]
        benefit = {q: float(arrays.benefit[q]) for q in moved}
        price = self.migration.price if self.migration is not None else 0.0
        homes = {q: home[q] for q in moved if q in home} if self.migration is not None else {}
        return Stakes(
            benefit=benefit,
            options=options_of(arrays, charge, moved),
            stay={q: price * benefit[q] for q in homes},
            home=homes,
        )


def _by_rate(arrays: PlanArrays, charge: FloatArray) -> list[int]:
    """Give the plans of all queries, the most benefit per charge first."""
    with np.errstate(divide="ignore"):
        ranked: list[int] = np.lexsort((charge, -arrays.benefit[arrays.owner] / charge)).tolist()
    return ranked
