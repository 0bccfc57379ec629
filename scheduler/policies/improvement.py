"""Local improvement of a schedule under limited machines.

One step takes a few queries off their machines and fills the room again, in an order and
with plans drawn at random around the prices (ruin and recreate, Schrimpf et al. 2000).
Two ways of choosing who leaves cover the usual moves:

- *eject*: a query that waits is put on a machine, those who are in its way leave, and come
  back where they find room: swap, eject-and-replace, and chains of these;
- *reopen*: everybody on one or two machines leaves: repacking, other plans.

A step is accepted when the schedule gets better, or not much worse while the search is young
(threshold accepting, Dueck and Scheuer 1990); otherwise everything is put back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from circinus.pipelines import checks
from circinus.pipelines.clock import Clock
from circinus.pipelines.model.profile import FloatArray
from circinus.scheduler.compiled.feasibility import PlanArrays
from circinus.scheduler.compiled.placement import Items, Placed, Placement


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How hard to look for something better."""

    # at most. The same problem takes the same steps, so this limit keeps the outcome
    # reproducible
    steps: int = 6000
    idle_steps: int = 3000  # ends after that many steps without a new best
    # of the whole policy, prices and filling included; what is left of it is for improvement. An
    # outcome that this cut short depends on the machine's speed
    time_limit_s: float = 1.5
    seed: int = 0  # of the random draws

    def __post_init__(self) -> None:
        checks.non_negative("steps", self.steps)
        checks.non_negative("idle_steps", self.idle_steps)
        checks.non_negative("time_limit_s", self.time_limit_s)


@dataclass(frozen=True, slots=True)
class PlacementOption:
    """A plan that a query could be placed with."""

    plan: int  # index of it
    items: Items  # what it asks of shared tiers
    charge: float  # what its items cost at the prices of the machines


def options_of(
    arrays: PlanArrays, charge: FloatArray, queries: Sequence[int]
) -> dict[int, list[PlacementOption]]:
    """Return the plans of some queries, the least charged first; of plans with equal items one."""
    options: dict[int, list[PlacementOption]] = {}
    first = arrays.first.tolist()
    for query in queries:
        start, end = first[query], first[query + 1]
        # One conversion per query: indexing arrays element by element takes ten times as long.
        bounds = arrays.item_first[start : end + 1].tolist()
        span = slice(bounds[0], bounds[-1])
        tiers, parts = arrays.item_tier[span].tolist(), arrays.item_parts[span].tolist()
        items = list(zip(tiers, parts, strict=True))
        money = charge[start:end].tolist()
        unlike: dict[Items, PlacementOption] = {}
        for i in sorted(range(end - start), key=money.__getitem__):
            demand = tuple(items[bounds[i] - bounds[0] : bounds[i + 1] - bounds[0]])
            unlike.setdefault(demand, PlacementOption(start + i, demand, money[i]))
        options[query] = list(unlike.values())
    return options


@dataclass(frozen=True, slots=True, kw_only=True)
class Stakes:
    """What there is to win."""

    benefit: Mapping[int, float]  # query -> benefit of serving it. Only these queries are moved
    options: Mapping[int, Sequence[PlacementOption]]  # query -> its plans, the least charge first
    # query -> where it runs, for those that may be moved
    home: Mapping[int, Placed]
    # what a move costs, in parts of the benefit: leaving a query exactly where it is wins it
    move_price: float

    def worth(self, query: int, placed: Placed) -> float:
        """Return the benefit of a query at a place."""
        worth = self.benefit[query]
        return worth + self.move_price * worth if placed == self.home.get(query) else worth


class RandomDraws:
    """Uniform draws from [0, 1), taken from a generator in batches: much cheaper one by one."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self._left: list[float] = []

    def next(self) -> float:
        """Return the next draw."""
        if not self._left:
            self._left = self._rng.random(4096).tolist()
        return self._left.pop()

    def below(self, n: int) -> int:
        """Return an integer in [0, n)."""
        return int(self.next() * n)


def ruin_and_recreate(
    placement: Placement[int],
    effort: Effort,
    clock: Clock,
    until: float,
    step: Callable[[float], bool],
) -> None:
    """Take steps until a limit is reached, `until` at the latest; leave the best placement met.

    A step takes how young the search is, 1 at first, falling towards 0, and returns whether the
    placement is the best so far.
    """
    best_at, idle = dict(placement.at), 0
    for number in range(effort.steps):
        if idle >= effort.idle_steps or (number % 16 == 0 and clock.now() >= until):
            break
        idle += 1
        if step(max(0.0, 1 - number / effort.steps)):
            best_at, idle = dict(placement.at), 0
    placement.restore(best_at)


_WARMTH = 1.0
"""Of the median benefit: how much worse a step may make things at first."""
_CROWD = 24
"""Waiting queries tried per step, besides those that left."""
_NOISE = 1.0
"""Spread of the order in which queries are tried, on the logarithm of benefit per charge."""


class Improver:
    """The search; holds the placement that it changes."""

    def __init__(self, placement: Placement[int], stakes: Stakes, draws: RandomDraws) -> None:
        self._placement = placement
        self._stakes = stakes
        self._draws = draws
        floor = min((o[0].charge for o in stakes.options.values() if o[0].charge > 0), default=1.0)
        self._rate = {
            q: stakes.benefit[q] / (options[0].charge + 0.01 * floor)
            for q, options in stakes.options.items()
        }
        by_rate = sorted(self._rate, key=lambda q: (-self._rate[q], q))
        self._out = [q for q in by_rate if q not in placement.at]
        tiers = enumerate(placement.on)
        self._machines = [(t, m) for t, there in tiers for m in range(len(there))]
        self._warmth = _WARMTH * float(np.median(list(stakes.benefit.values()) or [0.0]))
        self._gained = self._best = 0.0  # worth more than the first placement

    def step(self, youth: float) -> bool:
        """Change the placement, or put it back; return whether it is worth more than ever."""
        if (not self._out and not self._stakes.home) or not self._machines:
            return False
        allowed = -self._warmth * youth * self._draws.next() ** 2
        before: dict[int, Placed | None] = {}
        if self._out and self._draws.next() < 0.6:
            self._eject(before)
        else:
            self._reopen(before)
        self._refill(before)
        change = self._change(before)
        if change < allowed:
            self._placement.put_back(before)
            return False
        self._note(before)
        self._gained += change
        if self._gained > self._best + 1e-12 * abs(self._best):
            self._best = self._gained
            return True
        return False

    def _change(self, before: Mapping[int, Placed | None]) -> float:
        change = 0.0
        for query, old in before.items():
            new = self._placement.at.get(query)
            if new is not None:
                change += self._stakes.worth(query, new)
            if old is not None:
                change -= self._stakes.worth(query, old)
        return change

    def _eject(self, before: dict[int, Placed | None]) -> None:
        """Bring in a waiting query, clearing a machine for each of its items."""
        draws = self._draws
        query = self._out[int(draws.next() ** 1.5 * len(self._out))]
        options = self._stakes.options[query]
        option = options[int(draws.next() ** 2 * len(options))]
        before[query] = None
        for tier, parts in option.items:
            self._clear(tier, parts, before)
        self._placement.place(query, option.plan, option.items)

    def _clear(self, tier: int, parts: int, before: dict[int, Placed | None]) -> None:
        free = self._placement.free[tier]
        if free.largest >= parts:
            return
        there = self._placement.on[tier]
        machine = self._draws.below(len(there))
        movable = [q for q in sorted(there[machine]) if q in self._rate]
        # The least benefit per charge leaves first, give or take.
        movable.sort(key=lambda q: self._rate[q] * (0.4 + self._draws.next()))
        for query in movable:
            if free.on(machine) >= parts:
                return
            before.setdefault(query, self._placement.lift(query))

    def _reopen(self, before: dict[int, Placed | None]) -> None:
        draws = self._draws
        tier, machine = self._machines[draws.below(len(self._machines))]
        spots = [(tier, machine)]
        if draws.next() < 0.7:
            spots.append((tier, draws.below(len(self._placement.on[tier]))))
        if draws.next() < 0.3:
            spots.append(self._machines[draws.below(len(self._machines))])
        for tier, machine in spots:
            for query in sorted(self._placement.on[tier][machine]):
                if query in self._rate and draws.next() < 0.85:
                    before.setdefault(query, self._placement.lift(query))

    def _refill(self, before: dict[int, Placed | None]) -> None:
        """Bring in whoever finds room, those that left and a window of those that wait."""
        draws = self._draws
        crowd = [q for q in before if q not in self._placement.at]
        start = int(draws.next() ** 2 * max(1, len(self._out) - _CROWD + 1))
        crowd += [q for q in self._out[start : start + _CROWD] if q not in before]
        spread = _NOISE * draws.next()
        by_benefit = draws.next() < 0.2
        value = self._stakes.benefit if by_benefit else self._rate
        key = {q: value[q] * (1 + spread * (draws.next() - 0.5) * 4) for q in crowd}
        crowd.sort(key=lambda q: (-key[q], q))
        room = [free.largest for free in self._placement.free]
        for query in crowd:
            self._settle(query, room, before)

    def _settle(self, query: int, room: list[int], before: dict[int, Placed | None]) -> None:
        home = self._stakes.home.get(query)
        if home is not None and self._placement.occupy(query, home):
            before.setdefault(query, None)
            return
        for option in self._stakes.options[query]:
            for tier, parts in option.items:  # `any` takes twice as long: half of all the time
                if parts > room[tier]:
                    break
            else:
                if self._draws.next() < 0.06:
                    continue  # blink: Christiaens and Vanden Berghe 2020
                if not self._placement.place(query, option.plan, option.items):
                    continue
                before.setdefault(query, None)
                for tier, _ in option.items:
                    room[tier] = self._placement.free[tier].largest
                return

    def _note(self, before: Mapping[int, Placed | None]) -> None:
        at = self._placement.at
        if any((old is None) != (query not in at) for query, old in before.items()):
            touched = [q for q in self._out if q not in at]
            touched += [q for q, old in before.items() if old is not None and q not in at]
            touched.sort(key=lambda q: (-self._rate[q], q))
            self._out = touched
