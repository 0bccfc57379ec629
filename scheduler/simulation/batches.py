"""How large requests are: the batch mixes of the two papers' artefacts, and recorded ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from pipelines import checks
from scheduler.dispatch.policy import IntArray

BatchMix = Callable[[int, np.random.Generator], IntArray]
"""(count, rng) -> batch sizes, `>= 1`, shape (count,)."""

_MU, _SIGMA = 5.1, 0.2  # of the log-normal part, both artefacts


def kairos_batches(count: int, rng: np.random.Generator) -> IntArray:  # (count,)
    """Give batch sizes as the Kairos artefact draws them, 1 to 999.

    Of r uniform on 1..99: r <= 8 uniform on 1..99; 9..30 on 200..599; 31..35 on 600..999; else
    log-normal s where 100 <= s <= 200, uniform on 190..199 where it is not.
    """
    r = rng.integers(1, 100, count)
    s = rng.lognormal(_MU, _SIGMA, count)
    body = np.where((s >= 100) & (s <= 200), s.astype(np.int64), rng.integers(190, 200, count))
    return np.select(
        [r <= 8, r <= 30, r <= 35],
        [
            rng.integers(1, 100, count),
            rng.integers(200, 600, count),
            rng.integers(600, 1000, count),
        ],
        body,
    )


def ribbon_batches(count: int, rng: np.random.Generator) -> IntArray:  # (count,)
    """Give batch sizes as the Ribbon artefact draws them, 1 to 500.

    Of r uniform on 1..99: r <= 2 uniform on 1..99; 3..12 on 250..499; else log-normal s, or
    uniform on 400..499 where s > 500.
    """
    r = rng.integers(1, 100, count)
    s = rng.lognormal(_MU, _SIGMA, count)
    body = np.where(s <= 500, np.maximum(s.astype(np.int64), 1), rng.integers(400, 500, count))
    return np.select(
        [r <= 2, r <= 12], [rng.integers(1, 100, count), rng.integers(250, 500, count)], body
    )


def gaussian_batches(
    count: int, rng: np.random.Generator, *, mean: float = 300.0, std: float = 100.0
) -> IntArray:  # (count,)
    """Give normally distributed batch sizes, cut to 1..1000 (Kairos, section 8.4).

    The paper names neither mean nor deviation; the defaults are ours.
    """
    drawn = np.rint(rng.normal(mean, std, count)).astype(np.int64)
    return np.clip(drawn, 1, 1000)


def recorded_batches(batches: Sequence[int]) -> BatchMix:
    """Give a mix that draws from recorded sizes with replacement.

    Raises:
        InvalidInput: If there are none, or one is `< 1`.
    """
    checks.require(len(batches) > 0, "batches", "must not be empty", batches)
    checks.require(min(batches) >= 1, "batches", "must be >= 1", min(batches))
    pool = np.array(batches, dtype=np.int64)
    return lambda count, rng: rng.choice(pool, count)


def changing(before: BatchMix, after: BatchMix, *, at: float = 0.5) -> BatchMix:
    """Give a mix that changes after a share `at` of the requests, in [0, 1]."""
    checks.probability("at", at)

    def draw(count: int, rng: np.random.Generator) -> IntArray:
        first = round(at * count)
        return np.concatenate([before(first, rng), after(count - first, rng)])

    return draw
