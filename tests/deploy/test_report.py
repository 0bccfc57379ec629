"""Reports of several dispatchers add up to that of one that had seen all requests."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from circinus.deploy.runtime.report import (
    LATEST_ANSWERS,
    DeploymentReport,
    LatestAnswers,
    QueueFigures,
    SpanCounts,
)
from circinus.deploy.runtime.telemetry import Traffic

NOW = 4000.0
HAPPENINGS = st.lists(
    st.tuples(
        st.integers(0, 2),  # dispatcher
        st.floats(0, NOW),
        st.sampled_from(["answered", "late", "turned_away", "failed"]),
        st.floats(1e-5, 50.0),
    ),
    max_size=60,
)
COUNTS = st.integers(0, 1000)


def report(traffic: Traffic) -> DeploymentReport:
    rate = traffic.arrivals_per_s(NOW)
    return DeploymentReport(plan_id="p", arrivals_per_s=rate, spans=traffic.spans(NOW))


def noted(traffic: Traffic, at: float, what: str, latency_s: float) -> None:
    traffic.arrived(at)
    if what == "turned_away":
        traffic.failed(at, refused=True)
    elif what == "failed":
        traffic.failed(at)
    else:
        traffic.answered(at, latency_s, in_time=what == "answered")


@given(HAPPENINGS)
def test_what_requests_got_lately_is_as_if_one_had_served_all(
    happenings: Sequence[tuple[int, float, str, float]],
) -> None:
    alone, several = Traffic(0.0), [Traffic(0.0) for _ in range(3)]
    for dispatcher, at, what, latency_s in sorted(happenings, key=lambda each: each[1]):
        noted(alone, at, what, latency_s)
        noted(several[dispatcher], at, what, latency_s)
    together = reduce(DeploymentReport.plus, map(report, several))
    assert together.spans == report(alone).spans
    assert together.arrivals_per_s == pytest.approx(alone.arrivals_per_s(NOW))


@given(st.lists(st.tuples(COUNTS, COUNTS, st.floats(0, 10)), min_size=1, max_size=4))
def test_queues_add_up_and_what_is_at_work_for_one_is_so_for_all(
    told: Sequence[tuple[int, int, float]],
) -> None:
    queues = [
        QueueFigures(
            waiting=w, places=4, workers=2, answered=a, observed_over_predicted=r, busy=("x",)
        )
        for w, a, r in told
    ]
    together = reduce(QueueFigures.plus, queues)
    assert together.waiting == sum(w for w, _, _ in told)
    assert together.answered == sum(a for _, a, _ in told)
    assert together.busy == ("x",)
    assert (together.places, together.workers) == (4, 2)  # they share those
    answered = [(a, r) for _, a, r in told]
    weighed = sum(a * r for a, r in answered)
    if len(told) > 1:
        mean = weighed / together.answered if together.answered else 1.0
        assert together.observed_over_predicted == pytest.approx(mean)


def test_a_tier_that_the_first_does_not_know_is_left_aside() -> None:
    one = DeploymentReport(plan_id="p", queues={"edge": QueueFigures()})
    other = DeploymentReport(plan_id="p", queues={"cloud": QueueFigures(waiting=3)})
    assert one.plus(other).queues == {"edge": QueueFigures()}


def answers(*ago_and_latency_s: tuple[float, float], now: float = 0.0) -> LatestAnswers:
    rows = tuple((now - ago_s, s, s, 0.0, 0.0) for ago_s, s in ago_and_latency_s)
    return LatestAnswers(at=now, rows=rows)


def test_the_latest_answers_of_several_are_one_list_by_the_first_ones_clock() -> None:
    here, there = answers((9.0, 0.1), (1.0, 0.2)), answers((5.0, 0.3), (0.5, 0.4), now=700.0)
    together = here.plus(there)
    assert together.ago_s.tolist() == [9.0, 5.0, 1.0, 0.5]  # the oldest first
    assert together.latency_s.tolist() == [0.1, 0.3, 0.2, 0.4]
    assert together.within(2.0).latency_s.tolist() == [0.2, 0.4]
    assert together.latest(3).latency_s.tolist() == [0.3, 0.2, 0.4]
    assert here.plus(LatestAnswers()) == here
    many = answers(*((1.0, 0.5) for _ in range(LATEST_ANSWERS)))
    assert len(many.plus(there)) == LATEST_ANSWERS


def test_without_answers_there_are_none() -> None:
    none = LatestAnswers(at=5.0)
    assert (len(none.ago_s), len(none.sojourn_s), len(none.usd)) == (0, 0, 0)
    assert len(none.within(60.0)) == 0
    nothing = SpanCounts(span_s=60.0, covered_s=60.0)
    assert (nothing.requests, nothing.goodput_per_s, nothing.p50_s) == (0, 0.0, None)


@pytest.mark.parametrize(("waiting", "saturated"), [(2, False), (3, True)])
def test_a_queue_is_saturated_where_more_wait_than_could_be_at_work(
    waiting: int, saturated: bool
) -> None:
    assert QueueFigures(waiting=waiting, places=2, workers=1).is_saturated is saturated
