"""Which pool to rent: the largest rate for a budget, the cheapest pool for a rate.

One rule: the stated rate of a pool was simulated on draws that it was not chosen on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from circinus.pipelines import checks
from circinus.pipelines.model.profile import BoolArray, FloatArray
from circinus.scheduler.pool.kairos_bound import one_shot
from circinus.scheduler.pool.search import (
    KairosPlus,
    LargestRate,
    MeasurePool,
    Pool,
    PoolSpace,
    PoolStrategy,
    PoolTrial,
    best,
    search,
)
from circinus.scheduler.pool.worthwhile import least_cost
from circinus.scheduler.simulation.draws import IN_TIME, SimulatedRates
from circinus.scheduler.simulation.pool_choice import (
    ChoiceMethod,
    PoolChoice,
    PoolMarket,
    PoolQuestion,
)

MOST_TRIED = 200
"""Pools that are simulated for one choice."""

_ROUNDS = (1.1, 1.25, 1.5, 2.0, 3.0, 5.0)  # times the least cost of a rate
_CENT = 1e-9  # sums of prices are not exact
_BEYOND = 1.25  # a front goes on above the price of what was chosen for a rate


def largest_for_budget(question: PoolQuestion, budget_usd_per_hour: float) -> PoolChoice:
    """Choose the pool that serves the largest rate in time for so much an hour.

    InvalidInput if the budget pays no instance, or, of the published methods, the base type is
    late with a size.
    """
    checks.non_negative("budget", budget_usd_per_hour)
    market = PoolMarket.of(question, budget_usd_per_hour)
    within = market.space.within(budget_usd_per_hour)
    # of a published method, and for an oracle that is greedy, more instances are not always better
    full = within if question.method.has_base else market.space.full(budget_usd_per_hour)
    bounds = market.bounds(full)
    pool, tried, why = _largest(market, budget_usd_per_hour, within, bounds)
    looked = int(within.sum())
    if pool is None:
        return market.nothing(looked, tried, market.no_rate())
    offer, sure = market.served(pool)
    reason = f"of {looked} pools within {budget_usd_per_hour:g} USD/h {why}"
    front = market.front(budget_usd_per_hour, offer)
    return market.choice(offer, (looked, tried), sure, reason, front)


# deviates: cheapest-for-a-rate
def cheapest_for_rate(question: PoolQuestion, rate_rps: float) -> PoolChoice:
    """Choose the cheapest pool that has 99 % in time at a rate, on all of the draws.

    InvalidInput if the rate is not `> 0`, or as `largest_for_budget`.
    """
    checks.positive("rate", rate_rps)
    looked, runs, least = 0, 0, rate_rps * _least_cost(question)
    market = PoolMarket.of(question, max(question.prices))
    if least == np.inf:
        return market.nothing(0, 0, market.no_rate())
    if question.method is ChoiceMethod.RIBBON:
        return _by_ribbon(question, rate_rps)
    limit = _most_tried(question.method)
    before, dearest = -1.0, max(market.space.prices)
    budgets = [factor * least + n * dearest for n, factor in enumerate(_ROUNDS, start=1)]
    # where few may be had of the types that cost least, it may take all of the others
    every = float(np.dot(question.counts, question.prices)) if question.counts else 0.0
    for budget in (*budgets, *([every] if every > budgets[-1] else [])):
        market = PoolMarket.of(question, budget)
        costs = market.space.costs
        mask = market.space.within(budget) & (costs > before) & (costs >= least - 1e-9)
        bounds = market.bounds(mask)
        looked += int(mask.sum())
        for pool in _by_price(market.space, bounds, mask & (bounds >= rate_rps), limit):
            if runs == limit:
                why = f"none of {runs} pools that were simulated, the cheapest first, is in time"
                return market.nothing(looked, runs, f"{why} at {rate_rps:g}/s")
            runs += question.method.tries
            if not question.method.tries or market.in_time(pool, rate_rps):
                return _cheapest(market, pool, rate_rps, (looked, runs))
        before = budget
    why = f"none of the {runs} cheapest pools whose bound allows {rate_rps:g}/s is in time there"
    most = f"at most {max(question.limits)} of a type were looked at"
    return market.nothing(looked, runs, f"{why}; {most}")


def best_within(question: PoolQuestion, rate_rps: float, budget_usd_per_hour: float) -> PoolChoice:
    """Choose the cheapest pool for a rate; if none that can be paid is, the largest rate.

    InvalidInput as the two of them; the reason states which it is.
    """
    cheapest = cheapest_for_rate(question, rate_rps)
    why = cheapest.reason
    if cheapest.chosen is not None:
        price = cheapest.chosen.price_usd_per_hour
        if price <= budget_usd_per_hour + _CENT:
            return cheapest
        why = f"the cheapest pool in time at {rate_rps:g}/s costs {price:g} USD/h"
    instead = largest_for_budget(question, budget_usd_per_hour)
    return replace(instead, reason=f"{why}; {instead.reason}")


def _cheapest(
    market: PoolMarket, pool: Pool, rate_rps: float, counts: tuple[int, int]
) -> PoolChoice:
    offer, sure = market.served(pool)
    bound = "equation 15" if market.question.method.published else "the linear program"
    reason = f"the cheapest of {counts[0]} pools whose bound by {bound} allows {rate_rps:g}/s"
    if market.question.method.tries:
        part = "all" if market.question.method is ChoiceMethod.ORACLE else "99 %"
        sure = f"{part} in time at {rate_rps:g}/s in each of {len(market.every)} draws; {sure}"
        reason += f" and that is in time there; {counts[1] - 1} that cost no more were not"
    front = market.front(_BEYOND * offer.price_usd_per_hour, offer)
    return market.choice(offer, counts, sure, reason, front)


def _largest(
    market: PoolMarket, budget: float, within: BoolArray, bounds: FloatArray
) -> tuple[Pool | None, int, str]:
    """Return the pool, how many were simulated, and why it was chosen."""
    space, method = market.space, market.question.method
    if not bounds.max() > 0:
        return None, 0, ""
    if method is ChoiceMethod.KAIROS:
        chosen = one_shot(space.pools[within], bounds[within])
        return chosen.pool, 0, f"{chosen.rule}, by equation 15"
    if method is ChoiceMethod.BOUND:
        highest = space.at(int(bounds.argmax()))
        return highest, 0, "the highest bound by the linear program"
    if method is ChoiceMethod.ORACLE:
        return _largest_known(market, bounds)
    goal = LargestRate(space=space, budget_usd_per_hour=budget, bounds=bounds)
    strategy: PoolStrategy = KairosPlus(bounds=bounds)
    measure: MeasurePool = SimulatedRates(policy=market.policy, draws=market.draws)
    if method is ChoiceMethod.RIBBON:
        strategy, measure = _ribbon(market)
    trials = search(goal, strategy, measure, MOST_TRIED)
    best_trial = best(goal, trials)
    if best_trial is None:
        return None, len(trials), ""
    left = "the others cannot serve more, by their bounds"
    if method.published:
        left = "the others should not serve more, by equation 15, which is no bound"
    elif len(trials) == MOST_TRIED:
        left = "no more were tried"
    why = f"the largest rate of {len(trials)} simulated with {market.question.dispatch}; {left}"
    return best_trial.pool, len(trials), why


def _largest_known(market: PoolMarket, bounds: FloatArray) -> tuple[Pool | None, int, str]:
    """Return ORCL (Kairos, section 7): the largest of its rates over all pools.

    Pools come in the order of the LP bound, which no dispatcher exceeds, up to the first whose
    bound is no higher than the largest rate: none that is left could serve more.
    """
    rates, chosen, highest, runs = market.rates(market.draws), None, 0.0, 0
    for place in np.argsort(-bounds, kind="stable").tolist():
        if bounds[place] <= highest:
            break
        pool, runs = market.space.at(place), runs + 1
        if (rate := rates.rate(pool)) > highest:
            chosen, highest = pool, rate
    return chosen, runs, f"the largest rate of {runs} run by ORCL; the bounds of others are lower"


def _ribbon(market: PoolMarket) -> tuple[PoolStrategy, MeasurePool]:
    """Return the optimiser with what measures rates for it: none ends early, it learns of all."""
    # seconds of torch, that no other method should wait for
    from circinus.scheduler.pool.ribbon import Ribbon

    rates = market.rates(market.draws)
    return Ribbon(seed=market.question.seed), lambda pool: PoolTrial(pool, rates.rate(pool))


def _by_ribbon(question: PoolQuestion, rate_rps: float) -> PoolChoice:
    from circinus.scheduler.simulation.ribbon_choice import cheapest_by_ribbon

    return cheapest_by_ribbon(question, rate_rps, MOST_TRIED)


def _least_cost(question: PoolQuestion) -> float:
    share, mean_s = question.draws(0).share, question.table.mean_s
    return least_cost(share, mean_s, question.costs, question.qos_s, in_time=IN_TIME)


def _most_tried(method: ChoiceMethod) -> float:
    return np.inf if method is ChoiceMethod.ORACLE else MOST_TRIED


def _by_price(space: PoolSpace, bounds: FloatArray, of: BoolArray, most: float) -> Iterator[Pool]:
    """Yield pools, the cheapest first; of equals the fewest instances, then the highest bound.

    Of more than the most only those that no cheaper one's bound beats.
    """
    places = np.flatnonzero(of)
    size = space.pools[places].sum(axis=1)
    places = places[np.lexsort((-bounds[places], size, np.round(space.costs[places], 9)))]
    if len(places) > most:
        highest = np.maximum.accumulate(np.concatenate([[0.0], bounds[places]]))
        places = places[bounds[places] > highest[:-1]]
    yield from map(space.at, places.tolist())
