"""What trials at an earlier load tell of a new one (Ribbon, section 4, "load changes").

| symbol | meaning |
| --- | --- |
| A | the pool settled on at the earlier load, tried again at the new one |
| S | pools that were worse than A at the earlier load |
| R(B), R'(B) | share in time of a pool at the earlier and at the new load |

The paper takes equals into S as well. Pools that had all requests in time at the earlier load are
all equal, and some of them are the way out at the new one: here they stay.

Where A violates at the new load, all of S is taken to violate, too, with the share

    R'(B) = R(B) R'(A) / R(A)      (the paper's example: 99.9 to 33.3 %, so 90 to 30 %)
"""

from __future__ import annotations

from circinus.scheduler.pool.pools import PoolTrial
from circinus.scheduler.pool.search import CheapestInTime, Trials


def carried_over(goal: CheapestInTime, earlier: Trials, again: PoolTrial) -> list[PoolTrial]:
    """Return trials to begin the search at a new load with: A's, then those estimated of S.

    Strategies learn from an estimated one and do not try it; what it prunes is by the goal's
    rules, so that within the threshold it prunes nothing, other than published. None is estimated
    where A is feasible still, was never tried before, or had nothing in time.
    """
    before = {trial.pool: trial.value for trial in earlier if not trial.ended_early}
    of_a = before.get(again.pool, 0.0)
    if goal.feasible(again) or not of_a > 0:
        return [again]
    ratio = again.value / of_a
    estimated = [
        PoolTrial(pool, value * ratio, ended_early=True)
        for pool, value in before.items()
        if value < of_a
    ]
    return [again, *estimated]
