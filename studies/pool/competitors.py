"""Competitors of Ribbon: random, hill climbing, response surface, annealing, genetic.

Ribbon's section 5.3 has the first three, Kairos (figures 2 and 11) names the others. All use
the goal's worth, feasibility and hopeless pools. So none tries a pool that prices rule
out, which the published ones may: stronger competitors.

Each is a walk: a generator that yields the pool to try and is sent all trials so far.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field

import numpy as np

from circinus.pipelines.model.profile import IntArray
from circinus.scheduler.pool.search import Pool, PoolGoal, PoolTrial, Trials

Walk = Generator[Pool, Trials, None]
WalkMaker = Callable[[PoolGoal, np.random.Generator], Walk]

# deviates: competitors-as-named
_HOTTEST = 0.05  # heat of the first trial, in worth: a pool more or less is of that order
_COOLING = 0.95  # of each trial
_POPULATION = 10  # of genetic
_MUTATION = 0.5  # share of children with one instance more or less
_BIRTHS = 20  # children that are hopeless, before one comes from elsewhere


@dataclass(slots=True, kw_only=True)
class WalkingStrategy:
    """A `PoolStrategy` that walks; one that gets other trials than its own starts again."""

    walk: WalkMaker
    seed: int = 0
    _goal: PoolGoal | None = field(default=None, init=False, repr=False)
    _way: Walk | None = field(default=None, init=False, repr=False)
    _trials: tuple[PoolTrial, ...] = field(default=(), init=False, repr=False)
    _next: Pool | None = field(default=None, init=False, repr=False)

    def propose(self, goal: PoolGoal, trials: Trials) -> Pool | None:
        """See `PoolStrategy.propose`; it does not depend on earlier calls."""
        known, history = len(self._trials), tuple(trials)
        if self._way is None or goal is not self._goal or history[:known] != self._trials:
            self._goal, self._trials, known = goal, (), 0
            self._way = self.walk(goal, np.random.default_rng(self.seed))
            self._next = next(self._way, None)
        for count in range(known + 1, len(history) + 1):
            if self._next is not None:
                self._next = _sent(self._way, history[:count])
        self._trials = history
        return self._next


def _sent(way: Walk, trials: Trials) -> Pool | None:
    try:
        return way.send(trials)
    except StopIteration:
        return None


def random(goal: PoolGoal, rng: np.random.Generator) -> Walk:
    """Try any pool that is not hopeless: with a goal that prunes, as published (5.3)."""
    trials: Trials = ()
    while (left := _hopeful(goal, trials)).size:
        trials = yield goal.space.at(rng.choice(left))


def hill_climb(goal: PoolGoal, rng: np.random.Generator) -> Walk:
    """Climb from random pools (5.3): an instance less where it is feasible, else one more."""
    trials: Trials = ()
    while (left := _hopeful(goal, trials)).size:
        trials = yield goal.space.at(rng.choice(left))
        trials = yield from _climb(goal, rng, trials, trials[-1])


def response_surface(goal: PoolGoal, rng: np.random.Generator) -> Walk:
    """Try a face-centred central composite design, then climb from its best points down (5.3).

    In random order, and without those that turn out hopeless meanwhile. Then as `hill_climb`.
    """
    trials: Trials = ()
    for pool in _shuffled(central_composite(goal.space.most), rng):
        if not goal.hopeless(trials)[goal.space.place(pool)]:
            trials = yield pool
    for start in sorted(trials, key=goal.worth, reverse=True):
        trials = yield from _climb(goal, rng, trials, start)
    while (left := _hopeful(goal, trials)).size:
        trials = yield goal.space.at(rng.choice(left))
        trials = yield from _climb(goal, rng, trials, trials[-1])


def annealing(goal: PoolGoal, rng: np.random.Generator) -> Walk:
    """Go to a random neighbour if it is better, else with exp(gain / heat) (Kairos, figure 2).

    Where none is left, it goes on from a random pool.
    """
    trials: Trials = ()
    here: PoolTrial | None = None
    for step in itertools.count():
        left = _hopeful(goal, trials)
        if not left.size:
            return
        near = [] if here is None else _open(goal, trials, _neighbours(goal, here.pool))
        pool = near[int(rng.integers(len(near)))] if near else goal.space.at(rng.choice(left))
        trials = yield pool
        gain = goal.worth(trials[-1]) - (goal.worth(here) if here and near else 0.0)
        if gain >= 0 or rng.random() < np.exp(gain / (_HOTTEST * _COOLING**step)):
            here = trials[-1]


def genetic(goal: PoolGoal, rng: np.random.Generator) -> Walk:
    """Breed pools: two tournaments of two, each count of either parent, sometimes one off.

    The ten best of all are the parents (Kairos, figure 11, names the method only).
    """
    trials: Trials = ()
    while (left := _hopeful(goal, trials)).size:
        parents = sorted(trials, key=goal.worth, reverse=True)[:_POPULATION]
        child = None
        if len(trials) >= _POPULATION:
            born = (_child(goal, parents, rng) for _ in range(_BIRTHS))
            child = next(iter(_open(goal, trials, born)), None)
        trials = yield child or goal.space.at(rng.choice(left))


def central_composite(most: Pool) -> list[Pool]:
    """Return corners, centres of faces and centre of a space, once each, but no empty pool."""
    levels = [(0, round(m / 2), m) for m in most]
    marks = itertools.product(range(3), repeat=len(most))
    far = len(most)
    chosen = [mark for mark in marks if sum(level != 1 for level in mark) in (0, 1, far)]
    pools = (tuple(of[k] for of, k in zip(levels, mark, strict=True)) for mark in chosen)
    return [pool for pool in dict.fromkeys(pools) if any(pool)]


def _climb(
    goal: PoolGoal, rng: np.random.Generator, trials: Trials, here: PoolTrial
) -> Generator[Pool, Trials, Trials]:
    """Yield all trials after a climb from one of them, to where no neighbour is as good."""
    climbs = True
    while climbs:
        climbs = False
        for pool in _shuffled(_promising(goal, here), rng):
            if goal.hopeless(trials)[goal.space.place(pool)]:
                continue
            trials = yield pool
            if goal.worth(trials[-1]) >= goal.worth(here):
                here, climbs = trials[-1], True
                break
    return trials


def _promising(goal: PoolGoal, here: PoolTrial) -> list[Pool]:
    """Return pools to try near one: as good in value and no worse; if it violates, more."""
    near = _neighbours(goal, here.pool)
    if not goal.feasible(here):
        return [pool for pool in near if sum(pool) > sum(here.pool)]
    worth = goal.worth(here)
    return [pool for pool in near if goal.worth(here._replace(pool=pool)) >= worth]


def _neighbours(goal: PoolGoal, pool: Pool) -> list[Pool]:
    """Return the pools with one instance more or less."""
    neighbours = []
    for k, step in itertools.product(range(len(pool)), (-1, 1)):
        near = (*pool[:k], pool[k] + step, *pool[k + 1 :])
        if 0 <= near[k] <= goal.space.most[k] and any(near):
            neighbours.append(near)
    return neighbours


def _child(goal: PoolGoal, parents: Trials, rng: np.random.Generator) -> Pool:
    # Parents are in order: the better of two is the one that comes first.
    mother, father = (parents[int(rng.integers(len(parents), size=2).min())].pool for _ in "ab")
    child: Pool = tuple(
        a if rng.random() < 0.5 else b for a, b in zip(mother, father, strict=True)
    )
    near = _neighbours(goal, child)
    if near and rng.random() < _MUTATION:
        child = near[int(rng.integers(len(near)))]
    return child


def _open(goal: PoolGoal, trials: Trials, pools: Iterator[Pool] | list[Pool]) -> list[Pool]:
    """Return those that are not hopeless."""
    hopeless = goal.hopeless(trials)
    return [pool for pool in pools if any(pool) and not hopeless[goal.space.place(pool)]]


def _hopeful(goal: PoolGoal, trials: Trials) -> IntArray:
    return np.flatnonzero(~goal.hopeless(trials))


def _shuffled(pools: list[Pool], rng: np.random.Generator) -> list[Pool]:
    return [pools[i] for i in rng.permutation(len(pools))]
