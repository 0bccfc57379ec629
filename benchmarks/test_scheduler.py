"""How long scheduling and dispatching take. Sizes and seeds are fixed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from statistics import median
from time import perf_counter

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture
from scipy.optimize import linear_sum_assignment

from circinus.pipelines.model.plan import DemandItem
from circinus.pipelines.model.tiers import Tier
from circinus.scheduler.dispatch.learnt_latency import LatencyLine, LearntLatency
from circinus.scheduler.dispatch.matching import MinCostMatching
from circinus.scheduler.dispatch.plan_ahead import PlanAhead
from circinus.scheduler.dispatch.policy import UNPLANNED, DispatchPolicy, DispatchState, Fleet
from circinus.scheduler.policies.registry import Greedy
from circinus.scheduler.problem import Candidate, PlanOption, Problem, validate

TIERS = (
    Tier(name="device", machines=1, dedicated=True),
    Tier(name="edge", machines=64, price_usd_per_hour=2.5),
    Tier(name="cloud", machines=64, price_usd_per_hour=3.7),
)


def problem(queries: int, plans: int = 10, seed: int = 7) -> Problem:
    """Plans with an item on each of one to three tiers, in twentieths of at most 0.2."""
    rng = np.random.default_rng(seed)
    twentieths = rng.integers(0, 5, size=(queries, plans, len(TIERS)))
    twentieths[:, :, 2] += (twentieths.sum(axis=2) == 0).astype(int)
    weights = rng.uniform(1, 10, queries)
    return Problem(
        tiers=TIERS,
        candidates=tuple(
            Candidate(
                query_id=f"q{q:06}",
                weight=float(weights[q]),
                plans=tuple(_plan(p, row) for p, row in enumerate(twentieths[q].tolist())),
            )
            for q in range(queries)
        ),
    )


def _plan(number: int, twentieths: list[int]) -> PlanOption:
    items = zip(TIERS, twentieths, strict=True)
    demand = tuple(DemandItem(tier.name, n / 20) for tier, n in items if n)
    money = sum(
        tier.price_usd_per_hour * n / 20 for tier, n in zip(TIERS, twentieths, strict=True)
    )
    return PlanOption(plan_id=f"p{number}", demand=demand, cost_usd_per_hour=money)


@pytest.mark.parametrize("queries", [100, 1000, 10_000])
def test_greedy(benchmark: BenchmarkFixture, queries: int) -> None:
    given = problem(queries)
    schedule = benchmark(Greedy().schedule, given)
    assert validate(given, schedule) == ()


def test_validate(benchmark: BenchmarkFixture) -> None:
    given = problem(1000)
    assert benchmark(validate, given, Greedy().schedule(given)) == ()


def crowd(size: int, seed: int = 7) -> DispatchState:
    """As many waiting as instances of four unlike kinds, a quarter of them idle."""
    rng = np.random.default_rng(seed)
    speed = np.array([4.0, 1.5, 1.0, 0.5])
    kind = np.sort(rng.integers(0, 4, size))
    idle = np.arange(size) % 4 == 0
    work = rng.uniform(0.02, 0.4, size)
    return DispatchState(
        np.sort(rng.uniform(0, 0.3, size))[::-1].copy(),
        np.full(size, 0.35),
        work,
        np.full(size, UNPLANNED, dtype=np.int64),
        work[:, None] / speed[kind][None, :],
        np.where(idle, 0.0, rng.uniform(0, 0.2, size)),
        idle,
        Fleet(kind, speed[kind] / 4.0, speed[kind] / 4.0),
    )


@pytest.mark.parametrize("size", [20, 64, 200])
@pytest.mark.parametrize("policy", [PlanAhead(), MinCostMatching()], ids=["plan_ahead", "kairos"])
def test_decision(benchmark: BenchmarkFixture, policy: DispatchPolicy, size: int) -> None:
    assert benchmark(policy.decide, crowd(size)).starts


def changed(state: DispatchState, seed: int = 8) -> DispatchState:
    """A tenth of the requests are others; the rest, and the dual, are as Kairos left them."""
    rng = np.random.default_rng(seed)
    decision = MinCostMatching().decide(state)
    planned = np.full(len(state.waited_s), UNPLANNED, dtype=np.int64)
    for request, instance in (*decision.starts, *decision.planned):
        planned[request] = instance
    new = rng.choice(len(planned), len(planned) // 10, replace=False)
    predicted = state.predicted_s.copy()
    predicted[new] *= rng.uniform(0.5, 2.0, (len(new), 1))
    planned[new] = UNPLANNED
    return replace(state, predicted_s=predicted, planned=planned, dual=np.array(decision.dual))


@pytest.mark.parametrize("size", [20, 64, 200])
def test_warm_decision(benchmark: BenchmarkFixture, size: int) -> None:
    """Beside scipy's matching of the same pairs in the same run, one after the other."""
    state, policy = changed(crowd(size)), MinCostMatching()
    cost = policy.cost(state)
    decision = benchmark(policy.decide, state)
    matched = np.array([*decision.starts, *decision.planned])
    rows, columns = linear_sum_assignment(cost)
    least = cost[rows, columns].sum()
    assert cost[matched[:, 0], matched[:, 1]].sum() == pytest.approx(least, abs=1e-9 * size**2)
    calls: tuple[Callable[[], object], ...] = (
        lambda: policy.decide(state),
        lambda: linear_sum_assignment(cost),
    )
    ours, scipys = zip(*([_seconds(call) for call in calls] for _ in range(30)), strict=True)
    benchmark.extra_info["of_scipy"] = median(ours) / median(scipys)


def _seconds(call: Callable[[], object]) -> float:
    began = perf_counter()
    call()
    return perf_counter() - began


@pytest.mark.parametrize("size", [20, 64, 200])
def test_naive_full_matching(benchmark: BenchmarkFixture, size: int) -> None:
    state = crowd(size)
    benchmark(lambda: linear_sum_assignment(MinCostMatching().cost(state)))


def test_predictions(benchmark: BenchmarkFixture) -> None:
    """Of 20 sizes on 20 instances."""
    known = [LearntLatency(LatencyLine(prior_s=0.1)) for _ in range(20)]
    for one in known:
        one.observe(0.2, 10.0)
    sizes = [float(i) for i in range(20)]
    predicted = benchmark(lambda: [[one.predict(size) for one in known] for size in sizes])
    assert len(predicted) == 20
