"""Which pool to rent: the largest rate for a budget, the cheapest pool for a rate.

One rule: what a pool is said to serve in time was simulated on draws that it was not chosen on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from statistics import mean

import numpy as np

from circinus.pipelines import checks
from circinus.pipelines.profile import BoolArray, FloatArray, IntArray
from circinus.scheduler.dispatch.kernel import CompiledPolicy
from circinus.scheduler.dispatch.policies import dispatch_policy
from circinus.scheduler.pool.kairos_bound import kairos_bounds, kairos_figures
from circinus.scheduler.pool.kairos_plus import KairosPlus
from circinus.scheduler.pool.one_shot import one_shot
from circinus.scheduler.pool.pools import Pool, PoolSpace
from circinus.scheduler.pool.search import LargestRate, best, search
from circinus.scheduler.pool.throughput_bounds import throughput_bounds
from circinus.scheduler.pool.worthwhile import dearness, least_cost, worthwhile
from circinus.scheduler.simulation.draws import IN_TIME, LoadDraws
from circinus.scheduler.simulation.pool_choice import (
    ChoiceMethod,
    PoolChoice,
    PoolOffer,
    PoolQuestion,
)
from circinus.scheduler.simulation.pool_search import SimulatedRates

MOST_COUNTS = 400_000
"""Pools of a space; of more types that many counts allow, the least dear are looked at."""

MOST_TRIED = 200
"""Pools that are simulated for one choice."""

_OFFERS = 8  # budgets of a front
_COARSE = 0.01  # tolerance of its rates
_ROUNDS = (1.1, 1.25, 1.5, 2.0, 3.0, 5.0)  # times the least cost of a rate
_BEYOND = 1.25  # a front goes on above the price of what was chosen for a rate


def largest_for_budget(question: PoolQuestion, budget_usd_per_hour: float) -> PoolChoice:
    """Choose the pool that serves the largest rate in time for so much an hour.

    InvalidInput if the budget pays no instance, or, of the published methods, the base type is
    late with a size.
    """
    checks.non_negative("budget", budget_usd_per_hour)
    market = _Market.of(question, budget_usd_per_hour)
    within = market.space.within(budget_usd_per_hour)
    full = within if question.method.published else market.space.full(budget_usd_per_hour)
    bounds = market.bounds(full)
    pool, tried, why = _largest(market, budget_usd_per_hour, within, bounds)
    looked = int(within.sum())
    if pool is None:
        return market.nothing(looked, tried, market.no_rate())
    offer, sure = market.served(pool)
    reason = f"of {looked} pools within {budget_usd_per_hour:g} USD/h {why}"
    front = market.front(budget_usd_per_hour, offer)
    return market.choice(offer, (looked, tried), sure, reason, front)


def cheapest_for_rate(question: PoolQuestion, rate_rps: float) -> PoolChoice:
    """Choose the cheapest pool that has 99 % in time at a rate, on all of the draws.

    InvalidInput if the rate is not `> 0`, or as `largest_for_budget`.
    """
    checks.positive("rate", rate_rps)
    looked, runs, least = 0, 0, rate_rps * _least_cost(question)
    market = _Market.of(question, max(question.prices))
    if least == np.inf:
        return market.nothing(0, 0, market.no_rate())
    before, dearest = -1.0, max(market.space.prices)
    for number, factor in enumerate(_ROUNDS, start=1):
        budget = factor * least + number * dearest
        market = _Market.of(question, budget)
        costs = market.space.costs
        mask = market.space.within(budget) & (costs > before) & (costs >= least - 1e-9)
        bounds = market.bounds(mask)
        looked += int(mask.sum())
        for pool in _by_price(market.space, bounds, mask & (bounds >= rate_rps)):
            if runs == MOST_TRIED:
                why = f"none of {runs} pools that were simulated, the cheapest first, is in time"
                return market.nothing(looked, runs, f"{why} at {rate_rps:g}/s")
            runs += question.method.tries
            if not question.method.tries or market.in_time(pool, rate_rps):
                return _cheapest(market, pool, rate_rps, (looked, runs))
        before = budget
    why = f"none of the {runs} cheapest pools whose bound allows {rate_rps:g}/s is in time there"
    return market.nothing(looked, runs, f"{why}; at most {question.most} of a type were looked at")


def _cheapest(market: _Market, pool: Pool, rate_rps: float, counts: tuple[int, int]) -> PoolChoice:
    offer, sure = market.served(pool)
    bound = "equation 15" if market.question.method.published else "the linear program"
    reason = f"the cheapest of {counts[0]} pools whose bound by {bound} allows {rate_rps:g}/s"
    if market.question.method.tries:
        draws = market.question.checks + 1
        sure = f"99 % in time at {rate_rps:g}/s in each of {draws} draws; {sure}"
        reason += f" and that is in time there; {counts[1] - 1} that cost no more were not"
    front = market.front(_BEYOND * offer.price_usd_per_hour, offer)
    return market.choice(offer, counts, sure, reason, front)


def _largest(
    market: _Market, budget: float, within: BoolArray, bounds: FloatArray
) -> tuple[Pool | None, int, str]:
    """Give the pool, how many were simulated, and why it was chosen."""
    space, method = market.space, market.question.method
    if not bounds.max() > 0:
        return None, 0, ""
    if method is ChoiceMethod.KAIROS:
        chosen = one_shot(space.pools[within], bounds[within])
        return chosen.pool, 0, f"{chosen.rule}, by equation 15"
    if method is ChoiceMethod.BOUND:
        highest = _pool(space.pools[bounds.argmax()])
        return highest, 0, "the highest bound by the linear program"
    goal = LargestRate(space=space, budget_usd_per_hour=budget, bounds=bounds)
    rates = SimulatedRates(policy=market.policy, draws=market.draws)
    trials = search(goal, KairosPlus(bounds=bounds), rates, MOST_TRIED)
    found = best(goal, trials)
    if found is None:
        return None, len(trials), ""
    left = "the others cannot serve more, by their bounds"
    if method.published:
        left = "the others should not serve more, by equation 15, which is no bound"
    elif len(trials) == MOST_TRIED:
        left = "no more were tried"
    why = f"the largest rate of {len(trials)} simulated with {market.question.dispatch}; {left}"
    return found.pool, len(trials), why


@dataclass(frozen=True, slots=True, kw_only=True)
class _Market:
    """The pools of the types that are worth it, and what they are measured on."""

    question: PoolQuestion  # of those types
    space: PoolSpace
    draws: LoadDraws
    left_out: tuple[str, ...]

    @classmethod
    def of(cls, question: PoolQuestion, budget: float) -> _Market:
        """Give the pools that a budget pays."""
        if budget < min(question.prices):  # refused there, of all types
            PoolSpace.within_budget(question.table.kinds, question.prices, budget, 1)
        draws = question.draws(0)
        table, prices, qos_s = question.table, question.costs, question.qos_s
        dear = dearness(draws.share, table.mean_s, prices, qos_s)
        paid = np.divide(budget, prices, out=np.full(len(prices), np.inf), where=prices > 0)
        choices = 1 + np.minimum(np.floor(paid + 1e-9), question.most)
        base = 0 if question.method.published else None
        taken = worthwhile(dear, choices, MOST_COUNTS, base)
        if len(taken) < len(prices):
            kinds, costs = table.kinds, question.prices
            question = replace(
                question,
                table=table.of_kinds([kinds[k] for k in taken]),
                prices=tuple(costs[k] for k in taken),
            )
            draws = question.draws(0)
        out = [k for k in range(len(prices)) if k not in taken]
        space = PoolSpace.within_budget(
            question.table.kinds, question.prices, budget, question.most
        )
        left_out = tuple(
            f"{table.kinds[k]}: {_left_out(dear[k], paid=choices[k] > 1)}" for k in out
        )
        return cls(question=question, space=space, draws=draws, left_out=left_out)

    @property
    def policy(self) -> CompiledPolicy:
        """The dispatch policy in use."""
        return dispatch_policy(self.question.dispatch)

    def bounds(self, of: BoolArray) -> FloatArray:  # (P,)
        """Give the bounds of some pools on their rates; 0 of the others."""
        found = np.zeros(len(self.space.pools))
        found[of] = self._bounds(self.space.pools[of])
        return found

    def _bounds(self, pools: IntArray) -> FloatArray:
        share, mean_s, qos_s = self.draws.share, self.draws.table.mean_s, self.question.qos_s
        if self.question.method.published:
            return kairos_bounds(kairos_figures(share, mean_s, qos_s), pools)
        return throughput_bounds(share, mean_s, pools, qos_s, in_time=IN_TIME)

    def in_time(self, pool: Pool, rate_rps: float) -> bool:
        """Give whether 99 % are in time at a rate, on each of the draws."""
        every = (self.draws, *map(self.question.draws, range(1, 1 + self.question.checks)))
        return all(
            SimulatedRates(policy=self.policy, draws=draws).in_time(pool, rate_rps) >= IN_TIME
            for draws in every
        )

    def served(self, pool: Pool) -> tuple[PoolOffer, str]:
        """Give a pool with its rate on draws that it was not chosen on, and how sure that is."""
        if not self.question.method.tries:
            sure = "not simulated; no dispatcher exceeds the bound, and most stay 5 to 15 % below"
            if self.question.method.published:
                sure = "not simulated; dispatchers stay below equation 15 on most pools, not all"
            return self._offer(pool, None), sure
        draws = map(self.question.draws, range(1, 1 + self.question.checks))
        rates = [SimulatedRates(policy=self.policy, draws=each).rate(pool) for each in draws]
        told = f"{len(rates)} draws of {self.question.requests} requests that it was not chosen on"
        return (
            self._offer(pool, mean(rates)),
            f"{min(rates):.4g} to {max(rates):.4g}/s on {told}",
        )

    def front(self, budget: float, chosen: PoolOffer) -> tuple[PoolOffer, ...]:
        """Give what parts of a budget buy by their bounds, those that nothing else beats."""
        found = {chosen.pool: chosen}
        rates = SimulatedRates(policy=self.policy, draws=self.draws, tolerance=_COARSE)
        for part in range(1, 1 + _OFFERS):
            bounds = self.bounds(self.space.full(budget * part / _OFFERS))
            pool = _pool(self.space.pools[bounds.argmax()])
            if bounds.max() > 0 and pool not in found:
                tries = self.question.method.tries
                found[pool] = self._offer(pool, rates.rate(pool) if tries else None)
        return tuple(_undominated(found.values()))

    def _offer(self, pool: Pool, rate_rps: float | None) -> PoolOffer:
        (bound,) = self._bounds(np.array([pool])).tolist()
        cost = self.space.cost(pool)
        return PoolOffer(pool=pool, price_usd_per_hour=cost, rate_rps=rate_rps, bound_rps=bound)

    def choice(
        self,
        chosen: PoolOffer | None,
        counts: tuple[int, int],  # looked at, tried
        sure: str,
        reason: str,
        front: tuple[PoolOffer, ...],
    ) -> PoolChoice:
        """Give the answer."""
        return PoolChoice(
            types=self.space.types,
            chosen=chosen,
            looked_at=counts[0],
            tried=counts[1],
            sure=sure,
            reason=reason,
            front=front,
            left_out=self.left_out,
        )

    def nothing(self, looked_at: int, tried: int, reason: str) -> PoolChoice:
        """Give the answer that no pool will do."""
        return self.choice(None, (looked_at, tried), "", reason, ())

    def no_rate(self) -> str:
        """Say why no pool serves anything in time."""
        late = self.draws.table.mean_s.min(axis=1) > self.question.qos_s
        share = float(self.draws.share[late].sum())
        if share > 1 - IN_TIME:
            return (
                f"no pool has 99 % in time: {share:.1%} of the requests take longer than "
                f"{self.question.qos_s * 1e3:g} ms on every type"
            )
        return "no pool that can be paid has 99 % in time at any rate"


def _least_cost(question: PoolQuestion) -> float:
    share, mean_s = question.draws(0).share, question.table.mean_s
    return least_cost(share, mean_s, question.costs, question.qos_s, in_time=IN_TIME)


def _by_price(space: PoolSpace, bounds: FloatArray, of: BoolArray) -> Iterator[Pool]:
    """Give pools, the cheapest first; of equals the fewest instances, then the highest bound.

    Of more than MOST_TRIED only those that no cheaper one's bound beats.
    """
    places = np.flatnonzero(of)
    size = space.pools[places].sum(axis=1)
    places = places[np.lexsort((-bounds[places], size, np.round(space.costs[places], 9)))]
    if len(places) > MOST_TRIED:
        highest = np.maximum.accumulate(np.concatenate([[0.0], bounds[places]]))
        places = places[bounds[places] > highest[:-1]]
    yield from map(_pool, space.pools[places])


def _undominated(offers: Iterable[PoolOffer]) -> Iterator[PoolOffer]:
    """Give those that serve more than every cheaper one, by price."""
    most = 0.0
    for offer in sorted(offers, key=lambda o: (o.price_usd_per_hour, -_rate(o))):
        if _rate(offer) > most:
            most = _rate(offer)
            yield offer


def _rate(offer: PoolOffer) -> float:
    return offer.bound_rps if offer.rate_rps is None else offer.rate_rps


def _pool(counts: IntArray) -> Pool:
    return tuple(counts.tolist())


def _left_out(dear: float, *, paid: bool) -> str:
    if not paid:
        return "one costs more than there is"
    if dear == np.inf:
        return "late with every size, or paid where a free type serves as well"
    return f"more types than can be looked at together, and {dear:.2g} times as dear as the best"
