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

from dataclasses import dataclass, field

import numpy as np

from pipelines import checks
from pipelines.clock import Clock, SystemClock
from scheduler.arrays import FloatArray, IntArray, PlanArrays
from scheduler.compiled import Compiled
from scheduler.filling import charges, fill
from scheduler.greedy import keep_running
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
    reach: int = 4000
    clock: Clock = field(default_factory=SystemClock)

    def __post_init__(self) -> None:
        checks.positive("reach", self.reach)

    def schedule(self, problem: Problem) -> Schedule:
        """Give a valid schedule that mentions every candidate once."""
        compiled = Compiled.of(problem)
        prices = dual_prices(compiled.arrays)
        charge = charges(compiled.arrays, prices.per_machine)
        placement = compiled.placement()
        home = compiled.running()
        keep_running(compiled, placement, self._by_rate(compiled.arrays, charge, home))
        pinned = set() if self.migration is not None else set(placement.at)
        self.place(compiled.arrays, placement, (charge, prices.favourite), pinned, home)
        return compiled.schedule(placement)

    def of_arrays(self, arrays: PlanArrays, placement: Placement) -> Prices:
        """Fill a placement; give the prices and the bound that they prove."""
        prices = dual_prices(arrays)
        guide = (charges(arrays, prices.per_machine), prices.favourite)
        self.place(arrays, placement, guide, set(placement.at), {})
        return prices

    def place(
        self,
        arrays: PlanArrays,
        placement: Placement,
        guide: tuple[FloatArray, IntArray],
        pinned: set[int],
        home: dict[int, Placed],
    ) -> None:
        """Fill a placement and improve it.

        Args:
            arrays: All plans.
            placement: Of what runs already; changed.
            guide: Charge of each plan, favourite plan of each query.  # (L,), (N,)
            pinned: Queries that stay where they are.
            home: Where queries run.
        """
        charge, favourite = guide
        fill(arrays, placement, charge, favourite)
        stakes = self._stakes(arrays, placement, charge, pinned, home)
        rng = np.random.Generator(np.random.PCG64(self.effort.seed))
        Improver(placement, stakes, Draws(rng)).run(self.effort, self.clock.now)
        fill(arrays, placement, charge)

    def _by_rate(
        self, arrays: PlanArrays, charge: FloatArray, home: dict[int, Placed]
    ) -> list[int]:
        if not home and not len(arrays.benefit):
            return []
        with np.errstate(divide="ignore"):
            return np.lexsort((charge, -arrays.benefit[arrays.owner] / charge)).tolist()

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
            options={q: options_of(arrays, charge, q) for q in moved},
            stay={q: price * benefit[q] for q in homes},
            home=homes,
        )
