"""The best pool of a policy: pools of a budget in the order of their bounds, pruned by it.

As in Kairos+ (Algorithm 1), with the LP bound, which is one: a pool whose bound is below what
another was measured to serve needs no look. Coarse runs first; the few best ones again in full.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from circinus.studies.dispatch.draws import LoadDraws, Pool, allowable_rate
from circinus.studies.dispatch.study import (
    ORACLE,
    SEARCH_SEED,
    DispatchStudy,
    draws_of,
    oracle,
    policy_for,
)

_FINALISTS = 5
_COARSE, _FINE = 0.02, 0.002  # tolerances
_KEEP = 0.9  # coarse runs are short and their rates noisy: prune only what is clearly worse


def pools_within(prices: Sequence[float], budget: float) -> list[Pool]:
    """Give the pools that cost at most the budget, have a base instance and room for no other."""
    most = [int(budget / price + 1e-9) for price in prices]
    found = []
    for counts in itertools.product(*(range(count + 1) for count in most)):
        cost = sum(count * price for count, price in zip(counts, prices, strict=True))
        if counts[0] >= 1 and budget - prices[0] < cost <= budget + 1e-9:
            found.append(counts)
    return found


def search_pool(
    name: str, study: DispatchStudy, pools: Sequence[Pool], requests: int = 4000
) -> Pool:
    """Give the pool with the highest allowable rate for a policy, on draws of no seed of a study.

    Few `requests` are drawn for the first look, the study's own number for the finalists.
    """
    coarse = draws_of(study, SEARCH_SEED + 1, requests)
    fine = draws_of(study, SEARCH_SEED + 2, study.requests)
    bounds = {pool: coarse.bound_rps(pool) for pool in pools}
    ranked = sorted(pools, key=lambda pool: -bounds[pool])
    if name == ORACLE:
        return max(pools, key=lambda pool: oracle(coarse, pool))

    def rate_of(pool: Pool, draws: LoadDraws, tolerance: float) -> float:
        policy = policy_for(name, coarse, pool)
        scenarios = draws.scenarios(pool, policy.level)
        return allowable_rate(policy, scenarios, bounds[pool], tolerance=tolerance)[0]

    rates: list[tuple[float, Pool]] = []
    for pool in ranked:
        if rates and bounds[pool] < _KEEP * max(rates)[0]:
            break
        rates.append((rate_of(pool, coarse, _COARSE), pool))
    finalists = [pool for _, pool in sorted(rates, reverse=True)[:_FINALISTS]]
    return max(finalists, key=lambda pool: rate_of(pool, fine, _FINE))
