from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circinus.pipelines.errors import InvalidInput
from circinus.scheduler.pool import throughput_bounds as module
from circinus.scheduler.pool.throughput_bounds import throughput_bound, throughput_bounds
from tests.scheduler.kairos_data import BUDGET, QOS_S, latencies, needs_data, space


def one_by_one(
    share: np.ndarray, latency_s: np.ndarray, pools: np.ndarray, qos_s: float, in_time: float
) -> list[float]:
    """Solve the program of each pool."""
    return [
        throughput_bound(share, latency_s, pool, qos_s, in_time=in_time).rate_rps for pool in pools
    ]


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"latency_s must have shape \(1, 2\)"):
        throughput_bounds(np.array([1.0]), np.array([[1.0]]), np.array([[1, 1]]), 1.0)
    with pytest.raises(InvalidInput, match="counts must be >= 0"):
        throughput_bounds(np.array([1.0]), np.array([[1.0]]), np.array([[-1]]), 1.0)


def test_what_nobody_serves_in_time_has_no_rate() -> None:
    share, pools = np.array([0.9, 0.1]), np.array([[3], [0]])
    latency = np.array([[1.0], [9.0]])
    assert throughput_bounds(share, latency, pools, 2.0).tolist() == [0.0, 0.0]
    # nine in ten are enough: 3 instances of 1 s serve 3 of 0.9 R
    found = throughput_bounds(share, latency, pools, 2.0, in_time=0.9)
    assert found == pytest.approx([3 / 0.9, 0.0])


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), kinds=st.integers(1, 6), sizes=st.integers(1, 12))
def test_every_bound_is_that_of_its_own_program(seed: int, kinds: int, sizes: int) -> None:
    rng = np.random.default_rng(seed)
    latency = rng.lognormal(0, 1, (sizes, kinds))
    latency[rng.random((sizes, kinds)) < 0.1] = np.inf
    share = rng.dirichlet(np.ones(sizes))
    # none so small that a solver's tolerance serves or leaves it
    share = np.where(rng.random(sizes) < 0.2, 0.0, np.maximum(share, 1e-3))
    share = share / share.sum() if share.any() else np.full(sizes, 1 / sizes)
    pools, in_time = rng.poisson(1.0, (6, kinds)), float(rng.choice([1.0, 0.99, 0.5]))
    found = throughput_bounds(share, latency, pools, 1.5, in_time=in_time)
    wanted = one_by_one(share, latency, pools, 1.5, in_time)
    assert found.tolist() == pytest.approx(wanted, rel=1e-6, abs=1e-6)


def test_pools_that_take_too_many_steps_are_solved_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_STEPS", 1)
    share, latency = np.array([0.5, 0.5]), np.array([[1.0, 2.0], [2.0, 9.0]])
    found = throughput_bounds(share, latency, np.array([[1, 1]]), 3.0)
    assert found.tolist() == pytest.approx([1.0])  # by hand in test_throughput_bound


def test_many_pools_are_looked_at_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_AT_ONCE", 1)
    pools = np.arange(5)[:, None]
    found = throughput_bounds(np.array([1.0]), np.array([[0.5]]), pools, 1.0)
    assert found.tolist() == pytest.approx([0.0, 2.0, 4.0, 6.0, 8.0])


@needs_data
@pytest.mark.parametrize("model", QOS_S)
def test_measured_models_have_the_bounds_of_their_programs(model: str) -> None:
    pools = space().pools[space().within(BUDGET)][::40]
    table = latencies(model)
    share = np.full(len(table.batches), 1 / len(table.batches))
    found = throughput_bounds(share, table.mean_s, pools, QOS_S[model], in_time=0.99)
    wanted = one_by_one(share, table.mean_s, pools, QOS_S[model], 0.99)
    assert found.tolist() == pytest.approx(wanted, rel=1e-6)
