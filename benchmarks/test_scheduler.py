"""How long scheduling and dispatching take. Sizes and seeds are fixed."""

from __future__ import annotations

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture
from scipy.optimize import linear_sum_assignment

from circinus.pipelines.model.plan import DemandItem
from circinus.pipelines.model.tiers import Tier
from circinus.scheduler.dispatch.baselines import MinCostMatching
from circinus.scheduler.dispatch.learnt_latency import LatencyLine, LearntLatency
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
