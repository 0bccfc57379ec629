"""What bounds on the rates of a thousand pools take, beside a linear program for each.

A thousand drawn pools of four types, a hundred sizes; the requests' mix is even. The baseline is
`throughput_bound`, by HiGHS, of one pool after the other: its time is told for a thousand.
"""

from __future__ import annotations

from time import perf_counter

import numpy as np
from pytest_benchmark.fixture import BenchmarkFixture

from circinus.pipelines.model.profile import FloatArray, IntArray
from circinus.scheduler.pool.kairos_bound import kairos_bounds, kairos_figures
from circinus.scheduler.pool.throughput_bounds import throughput_bound, throughput_bounds

POOLS, SIZES, QOS_S = 1000, 100, 0.35
_SOME = 50  # pools of the baseline


def drawn(seed: int = 7) -> tuple[FloatArray, FloatArray, IntArray]:
    """Return shares, seconds of sizes on types, pools; only the first is always in time."""
    rng = np.random.default_rng(seed)
    size = np.arange(1, SIZES + 1) / SIZES
    seconds = 0.02 + np.outer(size, [0.3, 0.4, 0.5, 0.9])
    return np.full(SIZES, 1 / SIZES), seconds, rng.integers(0, 14, (POOLS, 4))


def test_linear_programs_of_a_thousand_pools(benchmark: BenchmarkFixture) -> None:
    share, seconds, pools = drawn()
    found = benchmark(throughput_bounds, share, seconds, pools, QOS_S, in_time=0.99)
    began = perf_counter()
    wanted = [
        throughput_bound(share, seconds, pool, QOS_S, in_time=0.99).rate_rps
        for pool in pools[:_SOME]
    ]
    baseline_s = (perf_counter() - began) * POOLS / _SOME
    stats = benchmark.stats.stats  # type: ignore[union-attr]  # there after the run
    benchmark.extra_info["one by one, s"] = baseline_s
    benchmark.extra_info["times as long"] = baseline_s / stats.median
    np.testing.assert_allclose(found[:_SOME], wanted, rtol=1e-6)


def test_equation_15_of_a_thousand_pools(benchmark: BenchmarkFixture) -> None:
    share, seconds, pools = drawn()

    def both() -> FloatArray:
        return kairos_bounds(kairos_figures(share, seconds, QOS_S), pools)

    found = benchmark(both)
    stats = benchmark.stats.stats  # type: ignore[union-attr]  # as above
    benchmark.extra_info["times as long in the paper"] = 2 / stats.median
    assert len(found) == POOLS
