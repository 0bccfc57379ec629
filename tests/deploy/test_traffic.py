"""What requests got lately, beside sums and percentiles over all of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from circinus.deploy.runtime.traffic import SPANS_S, Traffic
from circinus.pipelines.model.slo import LatencyStatistic


def test_without_requests_there_are_counts_and_no_percentiles() -> None:
    for lately in Traffic(since=5.0).lately(5.0):
        assert (lately.requests, lately.in_time, lately.goodput_per_s) == (0, 0, 0.0)
        assert (lately.p50_s, lately.p95_s, lately.p99_s) == (None, None, None)


def test_everything_that_becomes_of_a_request_is_counted_once() -> None:
    traffic = Traffic(since=0.0)
    traffic.answered(1.0, 0.1, in_time=True)
    traffic.answered(2.0, 0.9, in_time=False)
    traffic.turned_away(3.0)
    traffic.failed(4.0)
    (minute, *_) = traffic.lately(20.0)
    assert (minute.requests, minute.in_time, minute.turned_away, minute.failed) == (4, 1, 1, 1)
    assert minute.goodput_per_s == 1 / 20  # as long as there is a deployment


def test_what_is_older_than_a_span_is_not_in_it_and_forgotten_after_the_longest() -> None:
    traffic = Traffic(since=0.0)
    for at in (0.0, 3000.0, 3500.0, 3599.0):
        traffic.answered(at, 0.1, in_time=True)
    assert [each.requests for each in traffic.lately(3600.0)] == [1, 2, 3]
    traffic.answered(10_000.0, 0.1, in_time=True)
    assert [len(span.slots) for span in traffic._spans] == [1, 1, 1]  # memory is bounded


def test_the_rate_of_arrivals_is_that_of_the_last_ten_seconds() -> None:
    traffic = Traffic(since=0.0)
    assert traffic.arrivals_per_s(0.0) == 0.0
    for tenth in range(200):  # ten a second for twenty seconds
        traffic.arrived(tenth / 10)
    assert traffic.arrivals_per_s(19.9) == pytest.approx(10.0, rel=0.11)
    assert traffic.arrivals_per_s(24.9) == pytest.approx(5.0, rel=0.21)
    assert traffic.arrivals_per_s(29.9) == 0.0
    assert len(traffic._arrivals) == 0  # memory is bounded


@given(
    st.lists(
        st.tuples(st.floats(0, 4000), st.floats(1e-6, 600), st.booleans()), min_size=1, max_size=60
    )
)
def test_percentiles_are_those_of_all_requests_at_most_a_fiftieth_too_high(
    requests: list[tuple[float, float, bool]],
) -> None:
    traffic, now = Traffic(since=0.0), 4000.0
    for at, latency_s, in_time in sorted(requests):
        traffic.answered(at, latency_s, in_time=in_time)
    for span_s, lately in zip(SPANS_S, traffic.lately(now), strict=True):
        # Slots are forgotten whole: those that began within the span count.
        inside = [r for r in requests if r[0] - r[0] % 10 > now - span_s]
        assert lately.requests == len(inside)
        assert lately.in_time == sum(in_time for _, _, in_time in inside)
        if inside:
            exact = LatencyStatistic.P95.of(np.array([latency_s for _, latency_s, _ in inside]))
            assert lately.p95_s is not None
            assert float(exact) * (1 - 1e-9) <= lately.p95_s
            assert lately.p95_s == pytest.approx(float(exact), rel=0.0201)
