"""Our policy when machines can be rented: serve all queries, on few and cheap machines.

The money of this form is that of whole machines (Circinus, appendix B.1): K_m machines of
tier m at G_m each, however full. A plan that is cheap by its shares may open a machine; a
dearer one may fit into a machine that is open anyway. What a plan calls is paid besides.

1. Queries are placed, the largest first, each with the plan that adds the least money: its
   shares, and the machines that it opens.
2. Machines are emptied, and their queries placed elsewhere or otherwise, within a limit; a
   step is accepted when the money falls, or when it stays and the rest is gathered on fewer
   machines (ruin and recreate, threshold accepting: see `scheduler.policies.improvement`).

What runs stays on its machines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from circinus.pipelines.clock import Clock, SystemClock
from circinus.pipelines.model.profile import FloatArray
from circinus.pipelines.model.tiers import Tier
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
from circinus.scheduler.problem import PARTS, Problem, Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class Rental:
    """A `SchedulingPolicy`: everybody, for little money; machines of the tiers are the most."""

    effort: Effort = field(  # limits of the local improvement
        default_factory=lambda: Effort(steps=4000, idle_steps=2000, time_limit_s=4.0)
    )
    clock: Clock = field(default_factory=SystemClock)  # of the time limit
    small_steps: ClassVar[bool] = False

    def schedule(self, problem: Problem) -> Schedule:
        """Return a valid schedule that mentions every candidate once."""
        compiled = Compiled.of(problem)
        arrays = compiled.arrays
        rent = arrays.usage @ np.array([t.price_usd_per_hour for t in compiled.tiers])
        money = rent + arrays.calls_usd_per_hour
        ranked = np.lexsort((arrays.owner, money / arrays.benefit[arrays.owner])).tolist()
        placement = compiled.placement()
        keep_running(compiled, placement, ranked)
        if compiled.tiers:
            until = self.clock.now() + self.effort.time_limit_s
            emptier = _Emptier(compiled, placement, money, self.effort.seed)
            if placement.at:
                ruin_and_recreate(placement, self.effort, self.clock, until, emptier.step)
        return compiled.filled_up(placement, ranked)


def rented_usd_per_hour(tiers: Sequence[Tier], schedule: Schedule) -> float:
    """Return the money of all shared machines that hold anything."""
    price = {tier.name: tier.price_usd_per_hour for tier in tiers if not tier.dedicated}
    used = {(s.tier, s.machine) for a in schedule.assignments for s in a.machines}
    return sum(price[tier] for tier, _ in used if tier in price)


def called_usd_per_hour(problem: Problem, schedule: Schedule) -> float:
    """Return the money of all that is called under a schedule."""
    plans = {(c.query_id, p.plan_id): p for c in problem.candidates for p in c.plans}
    served = (plans.get((a.query_id, a.plan_id)) for a in schedule.assignments)
    return sum(plan.calls_usd_per_hour for plan in served if plan is not None)


_WARMTH = 0.5
"""Of the dearest machine: how much worse a step may make things at first."""
_GATHER = 0.05
"""What gathering counts beside money: below the price of any machine, yet felt."""


class _Emptier:
    """Places everybody, the largest first, then searches; holds the placement that it changes."""

    def __init__(
        self, compiled: Compiled, placement: Placement[int], money: FloatArray, seed: int
    ) -> None:
        self._placement = placement
        self._price = [tier.price_usd_per_hour for tier in compiled.tiers]
        self._calls: list[float] = compiled.arrays.calls_usd_per_hour.tolist()
        self._draws = RandomDraws(np.random.Generator(np.random.PCG64(seed)))
        pinned = set(placement.at)
        queries = [q for q in range(len(compiled.queries)) if q not in pinned]
        self._options = options_of(compiled.arrays, money, queries)
        items = {q: [i for o in each for i in o.items] for q, each in self._options.items()}
        self._size = {q: max((parts for _, parts in each), default=0) for q, each in items.items()}
        dearest = max([*self._price, *self._calls])
        self._warmth = _WARMTH * dearest
        self._penalty: float = 100 * (sum(self._price) + dearest + 1.0)
        by_size = sorted(self._options, key=lambda q: (-self._size[q], q))
        self._insert(by_size, self._price, 0.0)
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
        score: float = sum(self._calls[placed.plan] for placed in self._placement.at.values())
        for tier, price in enumerate(self._price):
            free = self._placement.free[tier]
            for machine, there in enumerate(self._placement.on[tier]):
                if there:
                    filled = 1 - free.on(machine) / PARTS
                    score += price * (1 - _GATHER * filled * filled)
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
