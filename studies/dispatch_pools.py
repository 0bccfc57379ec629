"""The best pool of a policy: pools of a budget in the order of their bounds, pruned by it.

As in Kairos+ (Algorithm 1), with the LP bound, which is one: a pool whose bound is below what
another was measured to serve needs no look. Coarse runs first; the few best ones again in full.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from scheduler.simulation.engine import SimulatedPolicy
from studies.dispatch_draws import Draws, Pool, allowable_rate

_FINALISTS = 5
_COARSE = 0.02  # tolerance of the first look
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


def best_pool(
    policy_of: Callable[[Draws, Pool], SimulatedPolicy],
    level: float | None,
    pools: Sequence[tuple[Pool, float]],
    coarse: Draws,
    fine: Draws,
) -> Pool:
    """Give the pool with the highest allowable rate.

    Args:
        policy_of: The policy for a pool.
        level: Of the latencies it plans with, None: means.
        pools: With their bounds, highest first.
        coarse: Few requests, for the first look.
        fine: Many, for the finalists; of another seed than the study's.
    """
    rates: list[tuple[float, Pool]] = []
    best = 0.0
    for pool, bound in pools:
        if bound < _KEEP * best:
            break
        policy = policy_of(coarse, pool)
        rate, _ = allowable_rate(policy, coarse.scenarios(pool, level), bound, tolerance=_COARSE)
        rates.append((rate, pool))
        best = max(best, rate)
    finalists = [pool for _, pool in sorted(rates, reverse=True)[:_FINALISTS]]
    bounds = dict(pools)

    def rate_of(pool: Pool) -> float:
        scenarios = fine.scenarios(pool, level)
        return allowable_rate(policy_of(fine, pool), scenarios, bounds[pool])[0]

    return max(finalists, key=rate_of)
