"""Our policy when machines can be rented: serve all queries, on few and cheap machines.

The money of this form is that of whole machines (Circinus, appendix B.1): K_m machines of
tier m at G_m each, however full. A plan that is cheap by its shares may open a machine; a
dearer one may fit into a machine that is open anyway. What a plan calls is paid besides.

1. Queries are placed, the largest first, each with the plan that adds the least money: its
   shares, and the machines that it opens.
2. Machines are emptied, and their queries placed elsewhere or otherwise, within a limit; a
   step is accepted when the money falls, or when it stays and the rest is gathered on fewer
   machines (ruin and recreate, threshold accepting: see `scheduler.policies.improvement`).
3. Where machines or dollars of the problem do not suffice for all, as much benefit as fits is
   served, at the least money that is found for those.

What runs stays on its machines, unless migration is allowed: then a query is moved when that
saves more than `Migration.price` of what its plan costs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from circinus.pipelines.clock import Clock, SystemClock
from circinus.pipelines.model.profile import FloatArray
from circinus.scheduler.compiled.feasibility import Compiled
from circinus.scheduler.compiled.placement import Placed, Placement
from circinus.scheduler.policies.filling import keep_running
from circinus.scheduler.policies.improvement import (
    Effort,
    PlacementOption,
    RandomDraws,
    options_of,
    ruin_and_recreate,
)
from circinus.scheduler.policies.priced import Migration, Priced
from circinus.scheduler.problem import PARTS, Problem, Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class Rental:
    """A `SchedulingPolicy`: everybody, for little money; machines of the tiers are the most."""

    effort: Effort = field(  # limits of the local improvement
        default_factory=lambda: Effort(steps=4000, idle_steps=2000, time_limit_s=4.0)
    )
    migration: Migration | None = None  # None: what runs is not moved
    clock: Clock = field(default_factory=SystemClock)  # of the time limit
    small_steps: ClassVar[bool] = False

    def schedule(self, problem: Problem) -> Schedule:
        """Return a valid schedule that mentions every candidate once."""
        compiled = Compiled.of(problem)
        placement = self._cheapest(compiled)
        if len(placement.at) < len(compiled.queries):
            placement = self._most(compiled, placement)
        return compiled.filled_up(placement, _ranked(compiled))

    def _cheapest(self, compiled: Compiled) -> Placement[int]:
        """Return a placement of all, or of many, at little money."""
        placement = compiled.placement()
        keep_running(compiled, placement, _ranked(compiled))
        if compiled.tiers:
            until = self.clock.now() + self.effort.time_limit_s
            emptier = _Emptier(compiled, placement, self.migration, self.effort.seed)
            if placement.at:
                ruin_and_recreate(placement, self.effort, self.clock, until, emptier.step)
        return placement

    def _most(self, compiled: Compiled, placement: Placement[int]) -> Placement[int]:
        """Return the placement of most benefit, the money of those whom it serves reduced."""
        by_money = compiled.placement()
        keep_running(compiled, by_money, _ranked(compiled))
        limited = Priced(migration=self.migration, clock=self.clock)
        choices = (
            compiled.schedule(placement),
            compiled.filled_up(by_money, _ranked(compiled)),
            limited.schedule(compiled.problem),
        )
        worth = dict(
            zip((c.query_id for c in compiled.queries), compiled.arrays.benefit, strict=True)
        )
        best = max(choices, key=lambda choice: sum(worth[q] for q in sorted(choice.by_query)))
        fewer = Compiled.of(compiled.problem.without(best.waiting))
        cheaper = self._cheapest(fewer)
        if len(cheaper.at) == len(fewer.queries):
            best = fewer.schedule(cheaper)
        placed = compiled.placement()
        for query, place in compiled.places(best.by_query).items():
            placed.occupy(query, place)
        return placed


def _money(compiled: Compiled) -> FloatArray:  # (L,)
    """Return what each plan costs an hour: its shares at its tiers' prices, and its calls."""
    arrays = compiled.arrays
    rent = arrays.usage @ np.array([t.price_usd_per_hour for t in compiled.tiers])
    return np.asarray(rent + arrays.calls_usd_per_hour)


def _ranked(compiled: Compiled) -> list[int]:
    """Return the plans by money for their benefit, the least first."""
    arrays = compiled.arrays
    rate: NDArray[np.float64] = _money(compiled) / arrays.benefit[arrays.owner]
    ranked: list[int] = np.lexsort((arrays.owner, rate)).tolist()
    return ranked


_WARMTH = 0.5
"""Of the dearest machine: how much worse a step may make things at first."""
_BACK = 0.3
"""Chance that a query that ran is first tried where it ran."""
_GATHER = 0.05
"""What gathering counts beside money: below the price of any machine, yet felt."""


class _Emptier:
    """Places everybody, the largest first, then searches; holds the placement that it changes."""

    def __init__(
        self,
        compiled: Compiled,
        placement: Placement[int],
        migration: Migration | None,
        seed: int,
    ) -> None:
        self._placement = placement
        money = _money(compiled)
        self._price = [tier.price_usd_per_hour for tier in compiled.tiers]
        self._rent = [[t.price_of(m) for m in range(t.machines)] for t in compiled.tiers]
        self._calls: list[float] = compiled.arrays.calls_usd_per_hour.tolist()
        self._draws = RandomDraws(np.random.Generator(np.random.PCG64(seed)))
        # Where queries run that may be moved, and what that must save at least.
        self._home: Mapping[int, Placed] = {} if migration is None else compiled.running()
        self._move = {
            q: migration.price * float(money[at.plan])
            for q, at in self._home.items()
            if migration is not None
        }
        pinned = set(placement.at) if migration is None else set()
        queries = [q for q in range(len(compiled.queries)) if q not in pinned]
        self._options = options_of(compiled.arrays, money, queries)
        items = {q: [i for o in each for i in o.items] for q, each in self._options.items()}
        self._size = {q: max((parts for _, parts in each), default=0) for q, each in items.items()}
        dearest = max([*self._price, *self._calls])
        self._warmth = _WARMTH * dearest
        self._penalty: float = 100 * (sum(self._price) + dearest + 1.0)
        missing = [q for q in self._options if q not in placement.at]
        self._insert(sorted(missing, key=lambda q: (-self._size[q], q)), self._price, 0.0)
        self._now = self._best = self._score()

    def step(self, youth: float) -> bool:
        """Change the placement, or put it back; return whether it is better than ever."""
        before: dict[int, Placed | None] = {}
        self._empty(before)
        self._reinsert(before)
        new = self._score()
        if new > self._now + self._warmth * youth * self._draws.next() ** 3:
            self._placement.put_back(before)
            return False
        self._now = new
        if new < self._best - 1e-9:
            self._best = new
            return True
        return False

    def _score(self) -> float:
        """Return the cost and a lower bound for those left out, less a little for gathering."""
        at = self._placement.at
        score: float = sum(self._calls[placed.plan] for placed in at.values())
        score += sum(usd for q, usd in self._move.items() if at.get(q) != self._home[q])
        for tier, prices in enumerate(self._rent):
            free = self._placement.free[tier]
            for machine, there in enumerate(self._placement.on[tier]):
                if there:
                    filled = 1 - free.on(machine) / PARTS
                    score += prices[machine] * (1 - _GATHER * filled * filled)
        out = len(self._options) - sum(q in self._options for q in self._placement.at)
        return score + out * self._penalty

    def _empty(self, before: dict[int, Placed | None]) -> None:
        draws = self._draws
        open_ = [
            (self._placement.free[t].on(m), t, m)
            for t, machines in enumerate(self._placement.on)
            for m, there in enumerate(machines)
            if there
        ]
        self._leave_calls(before)
        if not open_:
            return
        open_.sort(key=lambda spot: -spot[0])  # the emptiest first
        spots = [open_[int(draws.next() ** 1.5 * len(open_))]]
        more = sum(draws.next() < chance for chance in (0.8, 0.4, 0.2, 0.2))
        spots += [open_[draws.below(len(open_))] for _ in range(more)]
        for i, (_, tier, machine) in enumerate(spots):
            for query in sorted(self._placement.on[tier][machine]):
                if query in self._options and (i == 0 or draws.next() < 0.8):
                    before.setdefault(query, self._placement.lift(query))

    def _leave_calls(self, before: dict[int, Placed | None]) -> None:
        """Lift some of those that are on no shared machine: together they may be worth one."""
        at = self._placement.at
        alone = [q for q in self._options if q in at and not at[q].items]
        if not alone:
            return
        part = self._draws.next()
        for query in alone:
            if self._draws.next() < part:
                before.setdefault(query, self._placement.lift(query))

    def _reinsert(self, before: dict[int, Placed | None]) -> None:
        draws = self._draws
        missing = [q for q in self._options if q not in self._placement.at and q not in before]
        before.update(dict.fromkeys(missing))
        spread = draws.next()
        key = {q: self._size[q] * (1 + spread * (draws.next() - 0.5)) for q in before}
        price = self._fancied() if draws.next() < 0.5 else self._price
        self._insert(sorted(before, key=lambda q: (-key[q], q)), price, 0.5 * draws.next())

    def _insert(self, queries: Sequence[int], price: Sequence[float], spread: float) -> None:
        for query in queries:
            home = self._home.get(query)
            back = home is not None and self._draws.next() < _BACK
            if home is not None and back and self._placement.occupy(query, home):
                continue
            ranked = sorted(
                (self._added(o, price) * (1 + spread * (self._draws.next() - 0.5)), i)
                for i, o in enumerate(self._options[query])
            )
            for _, i in ranked:
                option = self._options[query][i]
                if self._placement.place(query, option.plan, option.items):
                    break

    def _added(self, option: PlacementOption, price: Sequence[float]) -> float:
        """Return about what a plan adds: calls, shares, and part of each machine it opens."""
        added = 1e-9 + self._calls[option.plan]
        for tier, parts in option.items:
            free = self._placement.free[tier]
            machine = free.best(parts)
            opens = machine is None or free.on(machine) == PARTS
            share = parts / PARTS
            added += price[tier] * (share + 0.5 * (1 - share) if opens else share)
        return added

    def _fancied(self) -> list[float]:
        """Return prices for one step: some tier looks cheap, so that many move there together."""
        return [price * 4.0 ** (2 * self._draws.next() - 1) for price in self._price]
