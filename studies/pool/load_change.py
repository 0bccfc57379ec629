"""Does what was tried at an earlier load help at a new one (Ribbon, section 5.5, figure 16)?

Both loads are simulated on one stream of requests, first come, first served, the types in order:
the published tables are of one load each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from circinus.scheduler.pool.ribbon import Ribbon
from circinus.scheduler.pool.ribbon_reuse import carried_over
from circinus.scheduler.pool.search import Trials, search
from circinus.studies.pool.lookups import PoolLookup


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadChangeRow:
    """A line of `load-change.csv`: Ribbon's evaluations to the optimum; None: it was pruned."""

    seed: int
    earlier: int | None  # at the earlier load
    scratch: int | None  # at the new one, without what is known; with the settled pool again
    reused: int | None  # with it, the settled pool's new trial among them
    violating_scratch: int  # of the evaluations up to there
    violating_reused: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadChange:
    """Two loads on the pools of one space."""

    earlier: PoolLookup
    new: PoolLookup  # with another optimum, which is not that of the earlier one
    prunes_below: float | None = 0.01

    def rows(self, seeds: Sequence[int]) -> Iterator[LoadChangeRow]:
        """Yield a row for each seed."""
        for seed in seeds:
            goal = self.earlier.goal(self.prunes_below)
            known = self._until_optimum(self.earlier, seed, ())
            settled = self.earlier.optimum
            again = self.new.measure(settled)
            reused = self._until_optimum(
                self.new, seed + 1, carried_over(self.new.goal(self.prunes_below), known, again)
            )
            scratch = self._until_optimum(self.new, seed + 1, (again,))
            yield LoadChangeRow(
                seed=seed,
                earlier=_count(self.earlier, known),
                scratch=_count(self.new, [again, *scratch]),
                reused=_count(self.new, [again, *reused]),
                violating_scratch=1 + sum(not goal.feasible(trial) for trial in scratch),
                violating_reused=1 + sum(not goal.feasible(trial) for trial in reused),
            )

    def _until_optimum(self, lookup: PoolLookup, seed: int, known: Trials) -> Trials:
        most = len(lookup.space.pools)
        trials = search(
            lookup.goal(self.prunes_below), Ribbon(seed=seed), lookup.measure, most, known
        )
        count = _count(lookup, trials)
        return trials if count is None else trials[:count]


def _count(lookup: PoolLookup, trials: Trials) -> int | None:
    pools = [trial.pool for trial in trials]
    return pools.index(lookup.optimum) + 1 if lookup.optimum in pools else None
