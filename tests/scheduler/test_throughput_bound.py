from __future__ import annotations

from math import inf, nan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circinus.pipelines.errors import InvalidInput
from circinus.scheduler.dispatch.plan_ahead import PlanAhead
from circinus.scheduler.dispatch.policy import Fleet
from circinus.scheduler.pool.throughput_bounds import throughput_bound
from circinus.scheduler.simulation.engine import Scenario, simulate

ONE = np.array([1.0])


@pytest.mark.parametrize(
    ("share", "latency_s", "counts", "qos_s", "in_time", "message"),
    [
        ([0.5], [[1.0]], [1], 2.0, 1.0, "share must be >= 0 and add up to 1"),
        ([1.0], [[0.0]], [1], 2.0, 1.0, "latency_s must be > 0"),
        ([1.0], [[nan]], [1], 2.0, 1.0, "latency_s must be > 0"),
        ([1.0], [[1.0, 1.0]], [1], 2.0, 1.0, r"latency_s must have shape \(1, 1\)"),
        ([1.0], [[1.0]], [-1], 2.0, 1.0, "counts must be >= 0"),
        ([1.0], [[1.0]], [1], 0.0, 1.0, "qos_s must be finite and > 0"),
        ([1.0], [[1.0]], [1], 2.0, 0.0, r"in_time must be in \(0, 1\]"),
    ],
)
def test_what_makes_no_sense_is_refused(
    share: list[float],
    latency_s: list[list[float]],
    counts: list[int],
    qos_s: float,
    in_time: float,
    message: str,
) -> None:
    with pytest.raises(InvalidInput, match=message):
        throughput_bound(
            np.array(share), np.array(latency_s), np.array(counts), qos_s, in_time=in_time
        )


def test_one_kind_serves_its_time_divided_by_the_mean() -> None:
    # half take 1 s, half 3 s: 2 instances serve 2 / 2 s
    bound = throughput_bound(
        np.array([0.5, 0.5]), np.array([[1.0], [3.0]]), np.array([2]), qos_s=3.0
    )
    assert bound.rate_rps == pytest.approx(1.0)
    assert bound.price.tolist() == [1.0]


def test_large_requests_go_where_they_are_in_time() -> None:
    # base: 1 s and 2 s; auxiliary: 2 s and never in time; a half each.
    # auxiliary takes x small ones: 2 x = 1; base the rest: R / 2 - x + 2 R / 2 = 1, R = 1
    bound = throughput_bound(
        np.array([0.5, 0.5]), np.array([[1.0, 2.0], [2.0, 9.0]]), np.array([1, 1]), qos_s=3.0
    )
    assert bound.rate_rps == pytest.approx(1.0)
    # a second of the auxiliary saves half a second of the base
    assert bound.price == pytest.approx(np.array([1.0, 0.5]))


def test_what_no_instance_serves_in_time_bounds_the_rate_at_nothing() -> None:
    bound = throughput_bound(ONE, np.array([[inf]]), np.array([3]), qos_s=1.0)
    assert bound.rate_rps == 0.0


def test_the_few_that_may_be_late_are_the_dearest() -> None:
    # 1 % takes 100 s, 99 % take 1 s: all of them 1.99 s on average; without the dear ones
    # R requests cost 0.99 R
    share, latency = np.array([0.99, 0.01]), np.array([[1.0], [100.0]])
    strict = throughput_bound(share, latency, np.array([1]), qos_s=200.0)
    loose = throughput_bound(share, latency, np.array([1]), qos_s=200.0, in_time=0.99)
    assert strict.rate_rps == pytest.approx(1 / 1.99)
    assert loose.rate_rps == pytest.approx(1 / 0.99)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_no_run_serves_more_in_time_than_the_bound(seed: int) -> None:
    rng = np.random.default_rng(seed)
    latency = rng.uniform(0.2, 1.5, (4, 2))
    rows = rng.integers(0, 4, 600)
    share = np.bincount(rows, minlength=4) / 600
    counts = np.array([2, 3])
    kind = np.repeat([0, 1], counts)
    bound = throughput_bound(share, latency, counts, qos_s=1.5)
    arrived = np.cumsum(rng.exponential(1.0, 600)) / (1.5 * bound.rate_rps)
    scenario = Scenario(
        arrived_s=arrived,
        size=rows.astype(np.float64),
        service_s=latency[rows],
        predicted_s=latency[rows],
        qos_s=1.5,
        fleet=Fleet(kind, np.ones(5), np.ones(5)),
    )
    run = simulate(scenario, PlanAhead())
    late = run.finished_s - arrived > 1.5 + 1e-9
    in_time = 1.0 - late.mean()
    loose = throughput_bound(share, latency, counts, qos_s=1.5, in_time=in_time)
    # the last answers come up to one QoS after the last arrival
    lasted = arrived[-1] + 1.5
    assert 600 / lasted <= loose.rate_rps * (1 + 1e-6)
