"""When requests arrive: gaps in units of their mean, to be divided by a rate.

The same gaps at every rate: a search over rates compares like with like.
"""

from __future__ import annotations

import numpy as np

from pipelines import checks
from scheduler.dispatch.policy import FloatArray


def poisson_gaps(count: int, rng: np.random.Generator) -> FloatArray:  # (count,)
    """Give the gaps of a Poisson process: exponential, mean 1."""
    return rng.exponential(1.0, count)


def bursty_gaps(
    count: int, rng: np.random.Generator, *, burstiness: float = 4.0, mean_run: float = 50.0
) -> FloatArray:  # (count,)
    """Give gaps that are short for a while, then long for a while (interrupted Poisson).

    Two phases with rates `burstiness` to 1 and as many arrivals each on average take turns;
    the mean gap of the whole is 1.

    Args:
        count: Number of gaps.
        rng: Draws.
        burstiness: Rate of the busy phase over that of the calm one, `>= 1`; 1: Poisson.
        mean_run: Mean number of arrivals in a phase, `> 1`.

    Raises:
        InvalidInput: If a number is out of its range.
    """
    checks.require(burstiness >= 1, "burstiness", "must be >= 1", burstiness)
    checks.require(mean_run > 1, "mean_run", "must be > 1", mean_run)
    phase = np.cumsum(rng.random(count) < 1.0 / mean_run) % 2
    # Mean gaps a and b with a / b = burstiness and (a + b) / 2 = 1.
    calm = 2.0 * burstiness / (1.0 + burstiness)
    return rng.exponential(1.0, count) * np.where(phase == 0, calm, 2.0 - calm)


def recorded_gaps(gaps_s: FloatArray, count: int) -> FloatArray:  # (count,)
    """Give recorded gaps in their order, from the start again when they end, mean 1.

    Raises:
        InvalidInput: If there are none, one is negative or not finite, or all are 0.
    """
    good = len(gaps_s) > 0 and bool(((gaps_s >= 0) & np.isfinite(gaps_s)).all())
    checks.require(good, "gaps_s", "must be finite and >= 0, and at least one", gaps_s)
    taken = np.resize(gaps_s, count).astype(np.float64)
    checks.positive("mean gap", float(taken.mean()))
    return np.asarray(taken / taken.mean())


def arrival_times(gaps: FloatArray, rate_per_s: float) -> FloatArray:  # (N,)
    """Give the times at which requests arrive when the gaps are made to fit a rate.

    Raises:
        InvalidInput: If the rate is not `> 0`.
    """
    checks.positive("rate_per_s", rate_per_s)
    return np.asarray(np.cumsum(gaps) / rate_per_s)
