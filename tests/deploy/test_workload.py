"""What a deployment's requests are lately, and what they take on types of machines."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from circinus.deploy.runtime.dispatcher import Dispatcher
from circinus.deploy.runtime.learning import (
    MOST_CLASSES,
    TierLatencies,
    classes_of,
    relative_deviation,
    seconds_of,
)
from circinus.deploy.runtime.walk import RequestTerms
from circinus.deploy.workers.errors import TooManyRequests
from circinus.pipelines.clock import ManualClock
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.tiers import MachineType, Tier
from circinus.scheduler.dispatch.plan_ahead import PlanAhead
from circinus.scheduler.pool.monitor import MonitorSettings, TrafficMonitor
from tests.deploy.serving import plan, tiny

TYPED = Infrastructure(
    name="typed",
    tiers=(Tier(name="cloud", types=(MachineType(name="small"), MachineType(name="large"))),),
)


def test_without_requests_there_are_no_classes() -> None:
    sizes, classes = classes_of(np.zeros(0))
    assert (len(sizes), len(classes)) == (0, 0)


def test_requests_of_one_size_are_one_class() -> None:
    sizes, classes = classes_of(np.full(5, 3.0))
    assert (sizes.tolist(), classes.tolist()) == ([3.0], [0] * 5)


@given(st.lists(st.floats(1e-6, 1e12), min_size=1, max_size=200))
def test_classes_are_few_and_keep_order_and_sum(drawn: list[float]) -> None:
    given_sizes = np.array(drawn)
    sizes, classes = classes_of(given_sizes)
    assert len(sizes) <= MOST_CLASSES
    assert (np.diff(sizes) > 0).all()
    assert set(classes.tolist()) == set(range(len(sizes)))
    assert sizes[classes].sum() == pytest.approx(given_sizes.sum())
    order = np.argsort(given_sizes, kind="stable")
    assert (np.diff(classes[order]) >= 0).all()


def test_a_type_that_served_not_every_kind_is_left_out() -> None:
    latencies = TierLatencies("cloud", None, 1.0)
    latencies.observe(("a", 1.0), "small", 0.2)
    assert seconds_of(latencies, ["a", "b"], ["small"], np.ones(1)) == {}
    assert list(seconds_of(latencies, ["a"], ["small", "large"], np.ones(1))) == ["small"]


def test_kinds_of_one_request_add_up_by_size_with_their_deviations() -> None:
    latencies, rng = TierLatencies("cloud", None, 0.1), np.random.default_rng(0)
    for size in np.tile([1.0, 2.0, 4.0], 400).tolist():
        for kind, factor in (("a", 0.1), ("b", 0.3)):
            took = factor * size * float(np.exp(rng.normal(0.0, 0.2) - 0.02))
            latencies.observe((kind, size), "small", took)
    found = seconds_of(latencies, ["a", "b"], ["small"], np.array([1.0, 2.0, 4.0]))["small"]
    assert found.mean_s == pytest.approx([0.4, 0.8, 1.6], rel=0.15)
    alike = np.hypot(0.1, 0.3) / 0.4 * relative_deviation(0.2)
    assert found.std_s / found.mean_s == pytest.approx(np.full(3, alike), rel=0.3)


def test_the_deviation_is_that_of_a_log_normal() -> None:
    drawn = np.exp(np.random.default_rng(0).normal(0.0, 0.5, 400_000))
    assert relative_deviation(0.5) == pytest.approx(drawn.std() / drawn.mean(), rel=0.02)
    assert relative_deviation(0.0) == 0.0


def dispatcher(clock: ManualClock) -> Dispatcher:
    sized = replace(tiny("echo"), request_size=lambda given: float(str(given)))
    made = Dispatcher(sized, plan("echo"), TYPED, PlanAhead(), clock, 1)
    made.telemetry.monitor = TrafficMonitor(MonitorSettings(block=10, least=20, window=40))
    return made


def test_requests_count_also_where_they_are_turned_away() -> None:
    """Nothing serves and one may wait: all but the first are refused."""

    async def sent(clock: ManualClock, made: Dispatcher, size: float) -> None:
        clock.seconds += 0.1
        with pytest.raises(TooManyRequests):
            await made.request(size, RequestTerms(timeout_s=5.0))

    async def check() -> None:
        clock = ManualClock()
        made = dispatcher(clock)
        first = asyncio.create_task(made.request(1.0, RequestTerms(timeout_s=5.0)))
        await asyncio.sleep(0)
        assert made.workload().rate_per_s is None
        for _ in range(39):
            await sent(clock, made, 1.0)
        assert made.report().changes == 0
        seen = made.workload()
        assert (seen.sizes.tolist(), len(seen.classes)) == ([1.0], 40)
        assert seen.rate_per_s == pytest.approx(10.0, rel=0.05)
        assert (seen.seconds, seen.elsewhere_s) == ({"cloud": {}}, {})
        for _ in range(20):
            await sent(clock, made, 8.0)
        news = made.report()
        assert news.changes == 1
        assert news.last_change is not None
        assert news.last_change.mix
        assert made.workload().sizes.tolist() == [8.0]  # none from before the change
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        await made.close(drain_s=0.0)

    asyncio.run(check())
