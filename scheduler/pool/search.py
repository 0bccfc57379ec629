"""Pools of instances, their costs, and the search among them: goal, strategy and measurement.

A goal rates a trial and rules out pools that cannot be better; a strategy proposes the next
pool; a table, a simulator or rented instances measure it. `KairosPlus` (Kairos 5.2, algorithm 1)
tries pools in the order of their bounds: with bounds that no dispatcher exceeds it finds the best
pool, with equation 15 it may miss it.

| symbol | meaning | shape |
| --- | --- | --- |
| K | types of instance; type 0 is the base type where one is needed | |
| P | pools | |
| p | price of an instance of each type, USD per hour | (K,) |
| m | most instances of each type | (K,) |
| x | counts of each type in each pool | (P, K) |
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import NamedTuple, Protocol

import numpy as np

from circinus.pipelines import checks
from circinus.pipelines.model.profile import BoolArray, FloatArray, IntArray

Pool = tuple[int, ...]
"""How many instances of each type, in the order of the types."""

MOST_OF_TYPE = 100
"""Instances of a type in a pool that is chosen, unless configured otherwise."""
MOST_POOLS = 1_000_000
"""That a space may have: all are held at once."""

_CENT = 1e-9  # a price that is above a budget by less is within it: sums of prices are not exact


@dataclass(frozen=True, kw_only=True)
class PoolSpace:
    """The pools with at most so many instances of each type, but for the empty one."""

    types: tuple[str, ...]  # names, unique
    prices: tuple[float, ...]  # p, `>= 0`
    most: Pool  # m, `>= 0`, not all 0

    def __post_init__(self) -> None:
        checks.require(len(self.types) > 0, "types", "must not be empty", self.types)
        checks.unique("types", self.types)
        count = len(self.types)
        for name, values in (("prices", self.prices), ("most", self.most)):
            checks.require(len(values) == count, name, f"must have {count} values", values)
            for kind, value in zip(self.types, values, strict=True):
                checks.non_negative(f"{name} of {kind}", value)
        checks.require(any(self.most), "most", "must not be 0 for every type", self.most)
        size = prod(most + 1 for most in self.most)
        rule = f"must give at most {MOST_POOLS} pools"
        checks.require(size <= MOST_POOLS, "most", rule, f"{size} pools")

    @classmethod
    def within_budget(
        cls,
        types: Sequence[str],
        prices: Sequence[float],
        budget_usd_per_hour: float,
        most: int | Sequence[int],
    ) -> PoolSpace:
        """Return the space of what a budget can pay of each type alone, at most `most` of each.

        InvalidInput if it cannot pay a single instance.
        """
        checks.non_negative("budget", budget_usd_per_hour)
        cheapest = min(prices, default=0.0)
        rule = f"must pay an instance, of which the cheapest costs {cheapest:g} USD/h"
        checks.require(
            budget_usd_per_hour + _CENT >= cheapest, "budget", rule, budget_usd_per_hour
        )
        limits = [most] * len(prices) if isinstance(most, int) else most
        counts = [
            limit if price == 0 else min(limit, int((budget_usd_per_hour + _CENT) / price))
            for price, limit in zip(prices, limits, strict=True)
        ]
        return cls(types=tuple(types), prices=tuple(prices), most=tuple(counts))

    @cached_property
    def pools(self) -> IntArray:  # (P, K)
        """All of them, the last type's count the fastest to change."""
        grids = np.indices([most + 1 for most in self.most]).reshape(len(self.most), -1)
        return np.ascontiguousarray(grids.T[1:], dtype=np.int64)

    @cached_property
    def costs(self) -> FloatArray:  # (P,)
        """What an hour of each costs, in USD."""
        return np.asarray(self.pools @ np.array(self.prices))

    @cached_property
    def dearest(self) -> float:
        """The price of as many as there may be of each type."""
        return float(np.dot(self.most, self.prices))

    def cost(self, pool: Pool) -> float:
        """Return what an hour of a pool costs, in USD."""
        return float(np.dot(pool, self.prices))

    def place(self, pool: Pool) -> int:
        """Return the place of a pool among `pools`; InvalidInput if it is none of them."""
        inside = len(pool) == len(self.most) and all(
            0 <= count <= most for count, most in zip(pool, self.most, strict=True)
        )
        rule = f"must have at most {self.most} of {', '.join(self.types)}, and one at least"
        checks.require(inside and any(pool), "pool", rule, pool)
        return int(np.ravel_multi_index(pool, [most + 1 for most in self.most])) - 1

    def at(self, place: int) -> Pool:
        """Return the pool at a place among `pools`."""
        return tuple(self.pools[place].tolist())

    def within(self, budget_usd_per_hour: float) -> BoolArray:  # (P,)
        """Return which pools cost at most a budget."""
        return np.asarray(self.costs <= budget_usd_per_hour + _CENT)

    def full(self, budget_usd_per_hour: float) -> BoolArray:  # (P,)
        """Return which pools a budget pays with no other instance of any type beside them."""
        left = budget_usd_per_hour + _CENT - self.costs
        more = (self.pools < np.array(self.most)) & (np.array(self.prices) <= left[:, None])
        return np.asarray((left >= 0) & ~more.any(axis=1))


class PoolTrial(NamedTuple):
    """A pool that was tried, and what was measured of it."""

    pool: Pool
    # what the trial was for: the share of the requests that were in time at a rate, or the
    # largest rate at which enough were, per second
    value: float
    ended_early: bool = False  # it was clear that it violates; `value` is then of a part


def contained(pools: IntArray, largest: Pool) -> BoolArray:  # (P,)
    """Return which pools have at most as many of each type as another."""
    return np.asarray((pools <= np.array(largest)).all(axis=1))


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
        excluded = _tried(self.space, trials)
        chosen = best(self, trials)
        if chosen is not None:
            excluded |= self.space.costs >= self.space.cost(chosen.pool) - 1e-12
        if self.prunes_below is not None:
            for trial in trials:
                if not self.feasible(trial) and trial.value < self.in_time - self.prunes_below:
                    excluded |= contained(self.space.pools, trial.pool)
        return excluded


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
        excluded = _tried(self.space, trials) | ~self.space.within(self.budget_usd_per_hour)
        best = max((trial.value for trial in trials), default=0.0)
        excluded |= self.bounds <= best
        left = np.flatnonzero(~excluded)  # few, soon: looked at for every trial
        for trial in trials:
            left = left[~contained(self.space.pools[left], trial.pool)]
        excluded[:] = True
        excluded[left] = False
        return excluded


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
    mask = np.zeros(len(space.pools), dtype=np.bool_)
    mask[[space.place(trial.pool) for trial in trials]] = True
    return mask


@dataclass(frozen=True, slots=True, kw_only=True)
class KairosPlus:
    """A `PoolStrategy`: the highest bound first; of equals the larger pool, then the first."""

    bounds: FloatArray  # (P,); on the rate of each pool of the goal's space

    def propose(self, goal: PoolGoal, trials: Trials) -> Pool | None:
        """Return the pool with the highest bound that is not hopeless; None: all are."""
        left = np.flatnonzero(~goal.hopeless(trials))
        if not len(left):
            return None
        pools = goal.space.pools[left]
        # deviates: larger-of-equal-bounds
        return goal.space.at(left[np.lexsort((-pools.sum(axis=1), -self.bounds[left]))[0]])
