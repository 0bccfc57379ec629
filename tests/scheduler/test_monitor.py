"""The monitor on streams with and without a change.

False alarms: at most 0.01 are expected in a million requests of a steady mix and rate, so a
test of one million fails by chance once in a hundred seeds at most; its seed is fixed. Arrivals
in bursts of 50 that come four times as fast raised one alarm in eight million.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from math import exp, log, nan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.profile import FloatArray, IntArray
from circinus.scheduler.pool.monitor import (
    MonitorSettings,
    TrafficChange,
    TrafficMonitor,
    log_chance_of_mixes,
)
from circinus.scheduler.simulation.loads import (
    BatchMix,
    bursty_gaps,
    gaussian_batches,
    kairos_batches,
    poisson_gaps,
    ribbon_batches,
)

RATE_RPS = 137.0
Gaps = Callable[[int, np.random.Generator], FloatArray]
SMALL = MonitorSettings(window=400, block=20, least=100, queue_run=30)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"block": 9}, "block must be >= 10"),
        ({"least": 199}, "least must be >= 200"),
        ({"window": 999}, "window must be >= 1000"),
        ({"false_alarms": 0.0}, "false_alarms must be"),
        ({"distance": nan}, "distance must be"),
        ({"rate_factor": 1.0}, "rate_factor must be > 1"),
        ({"queue_run": 0}, "queue_run must be >= 1"),
    ],
)
def test_settings_that_make_no_sense_are_refused(changed: dict[str, float], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        MonitorSettings(**changed)  # type: ignore[arg-type] # that is the test


def test_sizes_below_0_and_times_that_fall_are_refused() -> None:
    monitor = TrafficMonitor()
    monitor.observe(1.0, 5.0, 0)
    with pytest.raises(InvalidInput, match="size must be"):
        monitor.observe(-1.0, 6.0, 0)
    with pytest.raises(InvalidInput, match="must not be before the request before it, 5"):
        monitor.observe(1.0, 4.0, 0)


@pytest.mark.parametrize(
    ("gaps", "count"),
    [
        pytest.param(poisson_gaps, 1_000_000, marks=pytest.mark.slow),
        (bursty_gaps, 200_000),
    ],
)
def test_a_steady_mix_and_rate_raise_no_alarm(gaps: Gaps, count: int) -> None:
    rng = np.random.default_rng(28)
    sizes, arrived_s = kairos_batches(count, rng), np.cumsum(gaps(count, rng) / RATE_RPS)
    assert _told(sizes, arrived_s) == []


@pytest.mark.parametrize(
    ("before", "after", "within"),
    [
        (kairos_batches, gaussian_batches, 300),
        (kairos_batches, ribbon_batches, 1000),
        (ribbon_batches, kairos_batches, 400),
    ],
)
def test_another_mix_is_told_within_some_hundred_requests(
    before: BatchMix, after: BatchMix, within: int
) -> None:
    rng = np.random.default_rng(1)
    sizes = np.concatenate([before(12_345, rng), after(2_000, rng)])
    arrived_s = np.cumsum(poisson_gaps(len(sizes), rng) / RATE_RPS)
    (place, change), *more = _told(sizes, arrived_s)
    assert 12_345 < place <= 12_345 + within
    assert (change.mix, change.rate, change.queue) == (True, False, False)
    assert change.requests <= 2 * within
    assert more == []


@pytest.mark.parametrize(
    ("factor", "within"), [(2.0, 500), (0.5, 500), (1.2, 4_000), (0.8, 2_000)]
)
def test_another_rate_is_told(factor: float, within: int) -> None:
    rng = np.random.default_rng(2)
    gaps = poisson_gaps(20_000, rng) / RATE_RPS
    gaps[12_000:] /= factor
    place, change = _told(kairos_batches(20_000, rng), np.cumsum(gaps))[0]
    assert 12_000 < place <= 12_000 + within
    assert (change.mix, change.rate) == (False, True)
    assert change.was_rps == pytest.approx(RATE_RPS, rel=0.05)
    # of requests of which some came before the change
    assert abs(log(change.rate_rps / change.was_rps)) > 0.5 * abs(log(factor))


def test_a_rate_within_a_tenth_is_the_same_however_sure_it_is_another() -> None:
    arrived_s = np.cumsum([1.0] * 5_000 + [1 / 1.09] * 5_000)  # nothing random: surely another
    assert _told(np.ones(10_000), arrived_s) == []
    arrived_s = np.cumsum([1.0] * 5_000 + [1 / 1.11] * 5_000)
    assert len(_told(np.ones(10_000), arrived_s)) == 1


def test_a_mix_that_is_hardly_another_is_the_same_however_sure_that_is() -> None:
    def shifted(share: float) -> FloatArray:
        # sizes 1 and 2 by turns, then a share of what would be 1 is 3
        sizes = np.tile([1.0, 2.0], 20_000)
        sizes[20_000::2] = np.where(np.arange(10_000) % 100 < 200 * share, 3.0, 1.0)
        return sizes

    steady = np.arange(40_000.0)
    settings = MonitorSettings(block=1000, least=10_000)
    assert _told(shifted(0.04), steady, settings) == []
    assert len(_told(shifted(0.08), steady, settings)) == 1


def test_one_size_only_is_a_mix_and_any_other_size_a_change() -> None:
    for other in (0.5, 2.0):
        sizes = np.array([1.0] * 2_000 + [other] * 200)
        ((place, change),) = _told(sizes, np.arange(2_200.0))
        assert (place, change.mix, change.distance) == (2_100, True, 1.0)


def test_a_queue_that_stays_longer_than_it_ever_was_is_told() -> None:
    monitor = TrafficMonitor(SMALL)
    # the reference meets up to 4; from request 400 on there are always 5
    waiting = [i % 5 for i in range(400)] + [5] * 40
    told = [change for i, w in enumerate(waiting) if (change := monitor.observe(1.0, i, w))]
    # 30 in a row: told at the end of the block in which the 30th came
    assert [(change.queue, change.mix, change.rate) for change in told] == [(True, False, False)]
    assert told[0].waiting == 5
    monitor = TrafficMonitor(SMALL)
    waiting = [i % 5 for i in range(400)] + ([5] * 29 + [4]) * 2
    assert not any(monitor.observe(1.0, i, w) for i, w in enumerate(waiting))


def test_after_a_change_its_requests_are_the_reference() -> None:
    rng = np.random.default_rng(3)
    mixes = (kairos_batches, gaussian_batches, kairos_batches)
    sizes = np.concatenate([mix(5_000, rng) for mix in mixes]).astype(np.float64)
    monitor, told = TrafficMonitor(), []
    for i, size in enumerate(sizes.tolist()):
        if monitor.observe(size, float(i), 0):
            told.append(i)
            # it has what came since the change, but for half a block at most
            since = np.array(sizes[i + 1 - len(monitor.sizes()) : i + 1])
            assert (monitor.sizes() == since).all()
    first, second = told
    assert 5_000 < first < 5_500
    assert 10_000 < second < 11_000


def test_it_has_the_sizes_of_the_last_window() -> None:
    monitor = TrafficMonitor(SMALL)
    for i in range(1_007):
        monitor.observe(float(i % 3), float(i), 0)
    assert monitor.sizes().tolist() == [i % 3 for i in range(607, 1_007)]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.floats(0.01, 1), min_size=2, max_size=9),
    st.integers(20, 3000),
    st.integers(20, 3000),
    st.integers(0, 10**6),
)
def test_the_chance_of_such_counts_is_no_larger_than_its_bound(
    weights: list[float], n: int, m: int, seed: int
) -> None:
    # the bound says that half the statistic exceeds x with at most this chance; of 400 pairs, at
    # a chance of 0.05, more than 45 are there with a probability of 1e-6 if it is one
    rng = np.random.default_rng(seed)
    share = np.array(weights) / sum(weights)
    before, after = rng.multinomial(n, share, 400), rng.multinomial(m, share, 400)
    pairs = zip(before, after, strict=True)
    assert sum(log_chance_of_mixes(c, d) < log(0.05) for c, d in pairs) <= 45


def test_the_bound_is_above_what_many_requests_would_make_of_the_chance() -> None:
    # with many requests the statistic has a chi-square law of k - 1 = 3 degrees
    before, after = np.array([2500, 2500, 2500, 2500]), np.array([2900, 2600, 2400, 2100])
    both = before + after
    ratio = sum(float((c * np.log(c / (both / 2))).sum()) for c in (before, after))
    chance = exp(log_chance_of_mixes(before, after))
    assert chi2.sf(2 * ratio, 3) < chance < 1e-4


def test_spans_are_powers_of_two_and_everything() -> None:
    spans = MonitorSettings().spans
    assert spans == (1, 2, 4, 8, 16, 32, 64, 100)
    assert all(a < b for a, b in pairwise(MonitorSettings(window=1_600).spans))
    # 0.005 / (10,000 looks x 8 spans)
    assert MonitorSettings().log_level == pytest.approx(log(6.25e-8))


def _told(
    sizes: FloatArray | IntArray, arrived_s: FloatArray, settings: MonitorSettings | None = None
) -> list[tuple[int, TrafficChange]]:
    """Return how many requests had come when each change was told, and the change."""
    monitor = TrafficMonitor(settings)
    seen = enumerate(zip(sizes.tolist(), arrived_s.tolist(), strict=True))
    told = [(i + 1, monitor.observe(float(size), at, 0)) for i, (size, at) in seen]
    return [(place, change) for place, change in told if change is not None]
