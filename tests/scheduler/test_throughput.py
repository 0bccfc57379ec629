from __future__ import annotations

from math import inf, nan
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circinus.pipelines.errors import InvalidInput
from circinus.scheduler.dispatch.plan_ahead import PlanAhead
from circinus.scheduler.dispatch.policy import Fleet
from circinus.scheduler.pool import throughput_bounds as module
from circinus.scheduler.pool.kairos_bound import KairosFigures, kairos_bounds, kairos_figures
from circinus.scheduler.pool.throughput_bounds import throughput_bound, throughput_bounds
from circinus.scheduler.simulation.engine import Scenario, simulate
from circinus.scheduler.simulation.loads import kairos_batches
from tests.scheduler.kairos_data import (
    BUDGET,
    QOS_S,
    latencies,
    published_figures,
    space,
)

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


def one_by_one(
    share: np.ndarray, latency_s: np.ndarray, pools: np.ndarray, qos_s: float, in_time: float
) -> list[float]:
    """Solve the program of each pool."""
    return [
        throughput_bound(share, latency_s, pool, qos_s, in_time=in_time).rate_rps for pool in pools
    ]


def test_bounds_that_make_no_sense_are_refused() -> None:
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


@pytest.mark.parametrize("model", QOS_S)
def test_measured_models_have_the_bounds_of_their_programs(model: str) -> None:
    pools = space().pools[space().within(BUDGET)][::40]
    table = latencies(model)
    share = np.full(len(table.batches), 1 / len(table.batches))
    found = throughput_bounds(share, table.mean_s, pools, QOS_S[model], in_time=0.99)
    wanted = one_by_one(share, table.mean_s, pools, QOS_S[model], 0.99)
    assert found.tolist() == pytest.approx(wanted, rel=1e-6)


def figures(**changed: Any) -> KairosFigures:  # noqa: ANN401 - values of any field
    """One auxiliary type: f = 0.8, Q_a = 8, Q_b = 10, Q_b^{s+} = 4."""
    values: dict[str, Any] = {
        "base_rps": 10.0,
        "base_large_rps": np.array([4.0]),
        "small": np.array([0.8]),
        "auxiliary_rps": np.array([[8.0]]),
    }
    return KairosFigures(**{**values, **changed})


def by_the_paper(
    u: int, v: int, base: float, large: float, small: float, auxiliary: float
) -> float:
    """Equations 12 and 13 word by word; with u = v = 1 they are 9 and 11."""
    offloaded = (1 - small) / small * v * auxiliary
    if u * large <= offloaded:
        return u * large / (1 - small)
    slack = (u * large - offloaded) / (u * large) * u * base
    return v * auxiliary / small + slack


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"base_rps": 0.0}, "base_rps must be finite and > 0"),
        ({"small": np.array([1.1])}, r"small must be in \[0, 1\]"),
        ({"auxiliary_rps": np.array([[-1.0]])}, "auxiliary_rps must be finite and >= 0"),
        ({"base_large_rps": np.array([inf])}, "base_large_rps must be finite and >= 0"),
        ({"small": np.array([0.5, 0.5])}, "shapes must agree"),
    ],
)
def test_figures_that_make_no_sense_are_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        figures(**changed)


def test_pools_of_other_types_are_refused() -> None:
    with pytest.raises(InvalidInput, match="pools must have 2 types"):
        kairos_bounds(figures(), np.array([[1, 1, 1]]))


def test_a_base_type_that_is_late_is_refused() -> None:
    with pytest.raises(InvalidInput, match="latency of the base type must be at most 1 s"):
        kairos_figures(np.array([0.5, 0.5]), np.array([[0.5, 1.0], [1.1, 3.0]]), 1.0)


def test_an_auxiliary_instance_that_is_full_leaves_slack_to_the_base() -> None:
    # C = 0.25 * 8 = 2 < 4: 8 / 0.8 + (4 - 2) / 4 * 10 = 15
    assert kairos_bounds(figures(), np.array([[1, 1]])).tolist() == pytest.approx([15.0])


def test_a_base_that_is_full_is_the_bottleneck() -> None:
    # C = 0.25 * 24 = 6 > 4: 4 / 0.2 = 20
    assert kairos_bounds(figures(), np.array([[1, 3]])).tolist() == pytest.approx([20.0])


def test_without_instances_of_one_side_the_other_remains() -> None:
    # large requests are not served without a base
    assert kairos_bounds(figures(), np.array([[0, 3], [2, 0]])).tolist() == [0.0, 20.0]
    everything = figures(small=np.array([1.0]))
    assert kairos_bounds(everything, np.array([[2, 3]])).tolist() == [44.0]
    nothing = figures(small=np.array([0.0]))
    assert kairos_bounds(nothing, np.array([[2, 3]])).tolist() == [20.0]


@given(
    u=st.integers(0, 9),
    v=st.integers(1, 9),
    base=st.floats(0.1, 100),
    large=st.floats(0.1, 100),
    small=st.floats(0.01, 0.99),
    auxiliary=st.floats(0.1, 100),
)
def test_one_auxiliary_type_is_as_the_paper_writes_it(
    u: int, v: int, base: float, large: float, small: float, auxiliary: float
) -> None:
    told = KairosFigures(
        base_rps=base,
        base_large_rps=np.array([large]),
        small=np.array([small]),
        auxiliary_rps=np.array([[auxiliary]]),
    )
    found = kairos_bounds(told, np.array([[u, v]]))
    assert found == pytest.approx([by_the_paper(u, v, base, large, small, auxiliary)])


def test_the_type_that_is_in_time_furthest_says_what_is_small() -> None:
    told = figures(
        base_large_rps=np.array([4.0, 5.0]),
        small=np.array([0.8, 0.5]),
        auxiliary_rps=np.array([[8.0, 3.0], [9.0, 6.0]]),
    )
    # both there: sum v Q_a = 8 + 2 * 3; the second alone goes by its own f and rates
    both, alone = kairos_bounds(told, np.array([[1, 1, 2], [1, 0, 2]])).tolist()
    assert both == pytest.approx(by_the_paper(1, 1, 10.0, 4.0, 0.8, 14.0))
    assert alone == pytest.approx(by_the_paper(1, 2, 10.0, 5.0, 0.5, 6.0))


def test_figures_of_latencies_are_those_of_the_definitions() -> None:
    # sizes in shares 1/2, 1/4, 1/4; the auxiliary type is late from the second on
    share = np.array([0.5, 0.25, 0.25])
    latency = np.array([[1.0, 2.0], [2.0, 9.0], [4.0, inf]])
    found = kairos_figures(share, latency, 5.0)
    assert found.base_rps == pytest.approx(1 / 2)  # 0.5 + 0.5 + 1 seconds on average
    assert found.small.tolist() == [0.5]
    assert found.base_large_rps.tolist() == pytest.approx([0.5 / 1.5])
    assert found.auxiliary_rps.tolist() == [[pytest.approx(1 / 2)]]


def test_a_type_that_is_always_late_adds_nothing() -> None:
    found = kairos_figures(np.array([1.0]), np.array([[1.0, 9.0]]), 5.0)
    assert kairos_bounds(found, np.array([[1, 7]])).tolist() == [1.0]


@pytest.mark.parametrize("model", QOS_S)
def test_figures_of_the_measured_latencies_are_the_authors_own(model: str) -> None:
    table = latencies(model)
    rows = table.rows(kairos_batches(200_000, np.random.default_rng(1)))
    share = np.bincount(rows, minlength=len(table.batches)) / len(rows)
    ours, theirs = kairos_figures(share, table.mean_s, QOS_S[model]), published_figures(model)
    assert ours.base_rps == pytest.approx(theirs.base_rps, rel=0.01)
    # t3.xlarge is noisy: where it begins to be late is a matter of luck
    assert ours.small[:2] == pytest.approx(theirs.small[:2], rel=0.01)
    assert ours.base_large_rps[:2] == pytest.approx(theirs.base_large_rps[:2], rel=0.03)
    upper = np.triu_indices(2)
    assert ours.auxiliary_rps[upper] == pytest.approx(theirs.auxiliary_rps[upper], rel=0.02)
