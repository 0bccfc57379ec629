"""What a dispatcher counts, beside sums and percentiles over all of it."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from circinus.deploy.runtime.report import LATEST_ANSWERS, SPANS_S, LatestAnswers
from circinus.deploy.runtime.telemetry import Telemetry, Traffic, latest
from circinus.pipelines.model.slo import LatencyStatistic
from tests.deploy.serving import desired, serving, within


def test_without_requests_there_are_counts_and_no_percentiles() -> None:
    for span in Traffic(since=5.0).spans(5.0):
        assert (span.requests, span.in_time, span.goodput_per_s) == (0, 0, 0.0)
        assert (span.p50_s, span.p95_s, span.p99_s) == (None, None, None)


def test_everything_that_becomes_of_a_request_is_counted_once() -> None:
    traffic = Traffic(since=0.0)
    traffic.answered(1.0, 0.1, in_time=True)
    traffic.answered(2.0, 0.9, in_time=False)
    traffic.failed(3.0, refused=True)
    traffic.failed(4.0)
    (minute, *_) = traffic.spans(20.0)
    assert (minute.requests, minute.in_time, minute.turned_away, minute.failed) == (4, 1, 1, 1)
    assert minute.goodput_per_s == 1 / 20  # as long as there is a deployment


def test_what_is_older_than_a_span_is_not_in_it_and_forgotten_after_the_longest() -> None:
    traffic = Traffic(since=0.0)
    for at in (0.0, 3000.0, 3500.0, 3599.0):
        traffic.answered(at, 0.1, in_time=True)
    assert [each.requests for each in traffic.spans(3600.0)] == [1, 2, 3]
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
    for span_s, span in zip(SPANS_S, traffic.spans(now), strict=True):
        # Slots are forgotten whole: those that began within the span count.
        inside = [r for r in requests if r[0] - r[0] % 10 > now - span_s]
        assert span.requests == len(inside)
        assert span.in_time == sum(in_time for _, _, in_time in inside)
        if inside:
            exact = LatencyStatistic.P95.of(np.array([latency_s for _, latency_s, _ in inside]))
            assert span.p95_s is not None
            assert float(exact) * (1 - 1e-9) <= span.p95_s
            assert span.p95_s == pytest.approx(float(exact), rel=0.0201)


@given(st.lists(st.integers(), max_size=9), st.integers(0, 20))
def test_the_latest_are_the_last_of_what_is_kept(kept: list[int], count: int) -> None:
    assert list(latest(deque(kept), count)) == (kept[-count:] if count else [])


def test_before_the_first_request_there_are_no_figures() -> None:
    report = Telemetry("p", ("edge",), Traffic(0.0)).report(1.0, {})
    assert (report.answered, report.failed, len(report.answers)) == (0, 0, 0)
    assert (report.latency(), report.answers.elsewhere_s()) == ({}, {})


def test_figures_are_of_the_last_requests_and_counts_of_all() -> None:
    telemetry = Telemetry("p", ("edge",), Traffic(0.0))
    telemetry.add_failure(0.0, refused=False)
    for tenth in range(-LATEST_ANSWERS, 13):  # the last ten: 0.3 .. 1.2
        row = (float(tenth), tenth / 10, tenth / 10, 0.0, 0.0, 0.0)
        telemetry.add_answer(row, in_time=True)
    report = telemetry.report(12.0, {})
    assert (report.answered, report.failed) == (LATEST_ANSWERS + 13, 1)
    assert len(report.answers) == LATEST_ANSWERS
    last = replace(report, answers=report.answers.latest(10))
    # Inverted distribution function of ten values: the 5th, 9th, 10th, 10th.
    assert [*last.latency().values()] == pytest.approx([0.75, 0.7, 1.1, 1.2, 1.2])


def test_what_answers_spent_elsewhere_is_all_but_waits_and_the_tier_itself() -> None:
    rows = ((0.0, 9.0, 9.0, 0.5, 0.0, 1.0, 2.0), (0.0, 9.0, 9.0, 1.5, 0.0, 3.0, 4.0))
    answers = LatestAnswers(tiers=("edge", "cloud"), rows=rows)
    assert answers.elsewhere_s() == {"edge": 4.0, "cloud": 3.0}


def test_a_deployment_tells_what_its_requests_got(tmp_path: Path) -> None:
    async def scenario() -> None:
        wanted = desired("nap")
        async with serving(tmp_path, {"q": wanted}) as orchestrator:
            await orchestrator.request("q", 0.05, within(10.0))
            both = [
                asyncio.create_task(orchestrator.request("q", 0.2, within(10.0))) for _ in range(3)
            ]
            await asyncio.sleep(0.1)
            report = orchestrator.reports()["q"]
            queue = report.queues["cloud"]
            assert (queue.waiting, queue.places, queue.workers) == (2, 1, 1)
            assert report.arrivals_per_s == pytest.approx(0.4)
            assert report.plan_id == wanted.plan.id
            assert report.answers.sojourn_s[0] == pytest.approx(0.05, abs=0.04)
            await asyncio.gather(*both)
            assert len(orchestrator.reports()["q"].answers) == 4

    asyncio.run(scenario())
