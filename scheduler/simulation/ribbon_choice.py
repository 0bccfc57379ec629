"""The cheapest pool for a rate as Ribbon chooses it (Li et al., SC 2021): types, counts, search.

The types are those that serve more for a dollar (3.3), the counts those on which more do not
improve (section 4), and pools are proposed by Bayesian optimisation. A trial simulates the
dispatcher in use; the paper's is a deployed pool, first come, first served. What the paper leaves
open is in `scheduler.pool.ribbon`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from circinus.scheduler.dispatch.kernel import CompiledPolicy
from circinus.scheduler.dispatch.policies import dispatch_policy
from circinus.scheduler.pool.ribbon import Ribbon
from circinus.scheduler.pool.ribbon_space import MeasuredTypes, most_useful
from circinus.scheduler.pool.search import (
    CheapestInTime,
    Pool,
    PoolSpace,
    PoolTrial,
    best,
    search,
)
from circinus.scheduler.simulation.draws import IN_TIME, LoadDraws
from circinus.scheduler.simulation.engine import simulate
from circinus.scheduler.simulation.pool_choice import PoolChoice, PoolMarket, PoolQuestion

PRUNES_BELOW = 0.01
"""What violates by more prunes all that it contains (section 4: "over 1 %")."""
_LATE = 0.1  # of the requests: a trial ends early, as it violates (5.5)
_ABOVE = 1.25  # times the price of the pool that was chosen, of its front
_LEFT_OUT = "not among the three types that serve the most for a dollar and are nearly in time"


def cheapest_by_ribbon(question: PoolQuestion, rate_rps: float, most: int) -> PoolChoice:
    """Choose the cheapest pool that has 99 % in time at a rate, of at most so many trials.

    InvalidInput if no type alone has 99 % of the requests in time, or one that would be looked at
    is free.
    """
    market = _market(question, rate_rps)
    goal = CheapestInTime(space=market.space, in_time=IN_TIME, prunes_below=PRUNES_BELOW)
    strategy = Ribbon(seed=question.seed)
    # deviates: ribbon-trials-simulated
    trials = search(goal, strategy, SimulatedShares.of(market, rate_rps), most)
    chosen, looked = best(goal, trials), len(market.space.pools)
    if chosen is None:
        why = f"none of {len(trials)} pools that were tried is in time at {rate_rps:g}/s"
        return market.nothing(looked, len(trials), why)
    offer, sure = market.served(chosen.pool)
    left = "no more were tried" if len(trials) == most else "the others are dearer or pruned"
    reason = f"the cheapest in time of {len(trials)} pools that Ribbon tried of {looked}; {left}"
    front = market.front(_ABOVE * offer.price_usd_per_hour, offer)
    return market.choice(offer, (looked, len(trials)), sure, reason, front)


def _market(question: PoolQuestion, rate_rps: float) -> PoolMarket:
    if any(question.limits):  # else the space says what is wrong
        question = question.of_types([k for k, most in enumerate(question.limits) if most])
    kinds = question.table.kinds
    draws, table = question.draws(0), question.table
    types = MeasuredTypes(share=draws.share, latency_s=table.mean_s, prices=question.costs)
    useful = types.useful(question.qos_s, in_time=IN_TIME)
    question = question.of_types(useful)
    left_out = [kind for kind in kinds if kind not in question.table.kinds]
    draws = question.draws(0)
    every = tuple(map(question.draws, range(1 + question.checks)))
    policy = dispatch_policy(question.dispatch)
    shares = SimulatedShares(policy=policy, draws=every, rate_rps=rate_rps)
    alone = (draws.service_s <= question.qos_s).mean(axis=0)  # without a queue
    most = most_useful(
        lambda pool: shares(pool).value,
        len(useful),
        max(*question.limits, 1),
        highest=alone.tolist(),
        target=IN_TIME,
    )
    counts = tuple(map(min, most, question.limits))
    space = PoolSpace(types=question.table.kinds, prices=question.prices, most=counts)
    notes = tuple(f"{kind}: {_LEFT_OUT}" for kind in left_out)
    return PoolMarket(question=question, space=space, draws=draws, left_out=notes)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedShares:
    """A `MeasurePool`: the least share in time at a rate over some draws."""

    policy: CompiledPolicy
    draws: tuple[LoadDraws, ...]
    rate_rps: float

    @classmethod
    def of(cls, market: PoolMarket, rate_rps: float) -> SimulatedShares:
        """Return what tries the pools of a market on all of its draws."""
        return cls(policy=market.policy, draws=market.every, rate_rps=rate_rps)

    def __call__(self, pool: Pool) -> PoolTrial:
        """Simulate a pool, up to the first draw on which it violates."""
        trial = PoolTrial(pool, 1.0)
        for draws in self.draws:
            trial = min(trial, self._on(draws, pool), key=lambda each: each.value)
            if trial.value < IN_TIME:
                break
        return trial

    def _on(self, draws: LoadDraws, pool: Pool) -> PoolTrial:
        """Simulate one draw; what ends early has the share in time of its part as its value."""
        scenario = draws.scenarios(pool, self.policy.level)(self.rate_rps)
        count = len(scenario.arrived_s)
        run = simulate(scenario, self.policy, most_late=_LATE * count)
        if run.complete:
            return PoolTrial(pool, run.in_time)
        until_s = np.nanmax(run.started_s, initial=0.0)
        arrived = max(int(np.searchsorted(scenario.arrived_s, until_s, side="right")), 1)
        share = min(float(run.each_in_time.sum()) / arrived, 1.0 - _LATE)
        return PoolTrial(pool, share, ended_early=True)
