"""Trying pools, one after the other: the seam between what is wanted, who proposes, who measures.

A goal says how good a trial was and which pools cannot be better; a strategy proposes the next
pool; whoever measures may be a table, a simulator or instances that were rented. All three know
only `scheduler.pool.pools`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from circinus.pipelines import checks
from circinus.pipelines.model.profile import BoolArray, FloatArray
from circinus.scheduler.pool.pools import Pool, PoolSpace, PoolTrial, contained

Trials = Sequence[PoolTrial]

MeasurePool = Callable[[Pool], PoolTrial]


class PoolGoal(Protocol):
    """What is looked for among the pools of a space. A pure function of what was tried."""

    @property
    def space(self) -> PoolSpace:
        """The pools to choose from."""

    def worth(self, trial: PoolTrial) -> float:
        """Return how good a trial was, in [0, 1]: what strategies climb."""

    def feasible(self, trial: PoolTrial) -> bool:
        """Return whether the pool is one to settle on."""

    def hopeless(self, trials: Trials) -> BoolArray:  # (P,)
        """Return which pools need no trial: tried, or by its rules no better than the best."""


class PoolStrategy(Protocol):
    """Proposes which pool to try next."""

    def propose(self, goal: PoolGoal, trials: Trials) -> Pool | None:
        """Return a pool that is not `hopeless`; None: there is none, or it settles on the best."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheapestInTime:
    """The cheapest pool that has enough requests in time at the rate of the trials (Ribbon, 4).

    A trial's value is the share in time. Worth is equation 2: half of share over target where it
    violates, else a half and half of what is saved of the dearest pool.
    """

    space: PoolSpace
    in_time: float = 0.99  # target share T, in (0, 1]
    # a pool whose share is below the target by more than this prunes all that it contains, as
    # published with 0.01; None: only prices prune. That is all that trials prove: first come,
    # first served, a slow instance more may lower the share
    prunes_below: float | None = None

    def __post_init__(self) -> None:
        checks.share("in_time", self.in_time)
        if self.prunes_below is not None:
            checks.non_negative("prunes_below", self.prunes_below)

    def worth(self, trial: PoolTrial) -> float:
        """See `PoolGoal.worth`."""
        if not self.feasible(trial):
            return 0.5 * min(max(trial.value, 0.0) / self.in_time, 1.0)
        dearest = self.space.dearest
        saved = 1.0 - self.space.cost(trial.pool) / dearest if dearest > 0 else 1.0
        return 0.5 + 0.5 * saved

    def feasible(self, trial: PoolTrial) -> bool:
        """See there."""
        return not trial.ended_early and trial.value >= self.in_time

    def hopeless(self, trials: Trials) -> BoolArray:  # (P,)
        """See there: tried, at least as dear as a feasible one, or within a violating one."""
        found = _tried(self.space, trials)
        chosen = best(self, trials)
        if chosen is not None:
            found |= self.space.costs >= self.space.cost(chosen.pool) - 1e-12
        if self.prunes_below is not None:
            for trial in trials:
                if not self.feasible(trial) and trial.value < self.in_time - self.prunes_below:
                    found |= contained(self.space.pools, trial.pool)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class LargestRate:
    """The pool within a budget that serves the largest rate in time (Kairos, 5.2).

    A trial's value is that rate. Pools that a tried one contains are no better (Kairos, algorithm
    1), nor are those whose bound is no higher than the largest rate tried.
    """

    space: PoolSpace
    budget_usd_per_hour: float  # `>= 0`
    bounds: FloatArray  # (P,); on the rate of each pool of the space, per second

    def __post_init__(self) -> None:
        checks.non_negative("budget", self.budget_usd_per_hour)
        shape = (len(self.space.pools),)
        checks.require(self.bounds.shape == shape, "bounds", f"must have shape {shape}", "another")

    def worth(self, trial: PoolTrial) -> float:
        """See `PoolGoal.worth`."""
        highest = float(self.bounds[self.space.within(self.budget_usd_per_hour)].max(initial=0.0))
        return min(trial.value / highest, 1.0) if highest > 0 else 0.0

    def feasible(self, trial: PoolTrial) -> bool:
        """See there."""
        return trial.value > 0

    def hopeless(self, trials: Trials) -> BoolArray:  # (P,)
        """See there."""
        found = _tried(self.space, trials) | ~self.space.within(self.budget_usd_per_hour)
        best = max((trial.value for trial in trials), default=0.0)
        found |= self.bounds <= best
        left = np.flatnonzero(~found)  # few, soon: looked at for every trial
        for trial in trials:
            left = left[~contained(self.space.pools[left], trial.pool)]
        found[:] = True
        found[left] = False
        return found


def tried(
    goal: PoolGoal,
    strategy: PoolStrategy,
    measure: MeasurePool,
    most: int,
    known: Trials = (),  # before; the strategy learns from them, and they are none of the result
) -> Iterator[PoolTrial]:
    """Try the pools that a strategy proposes, at most so many, one whenever a trial is taken."""
    trials = list(known)
    for _ in range(most):
        pool = strategy.propose(goal, trials)
        if pool is None:
            return
        trials.append(measure(pool))
        yield trials[-1]


def search(
    goal: PoolGoal,
    strategy: PoolStrategy,
    measure: MeasurePool,
    most: int,
    known: Trials = (),
) -> list[PoolTrial]:
    """Return all trials of `tried`, in order."""
    return list(tried(goal, strategy, measure, most, known))


def best(goal: PoolGoal, trials: Trials) -> PoolTrial | None:
    """Return the best feasible trial, the first of equals; None: there is none."""
    return max(filter(goal.feasible, trials), key=goal.worth, default=None)


def _tried(space: PoolSpace, trials: Trials) -> BoolArray:
    found = np.zeros(len(space.pools), dtype=np.bool_)
    found[[space.place(trial.pool) for trial in trials]] = True
    return found
