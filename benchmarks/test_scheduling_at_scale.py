"""How long our scheduling policy takes, and how that grows. Sizes and seeds are fixed."""

from __future__ import annotations

import gc
from dataclasses import replace
from itertools import count

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from circinus.pipelines.model.tiers import Tier
from circinus.scheduler.compiled.feasibility import PlanArrays
from circinus.scheduler.compiled.placement import Placement
from circinus.scheduler.ilp import Ilp
from circinus.scheduler.policies.improvement import Effort
from circinus.scheduler.policies.priced import Priced
from circinus.scheduler.problem import validate
from circinus.scheduler.rolling.live import LiveSchedule
from circinus.studies.scheduling.problems import Recipe, arrays_of, problem_of

TIERS = (
    Tier(name="device", machines=1, dedicated=True),
    Tier(name="edge", machines=64, price_usd_per_hour=2.5),
    Tier(name="cloud", machines=64, price_usd_per_hour=3.7),
)
FILL_ONLY = Effort(steps=0)


def recipe(queries: int) -> Recipe:
    """Items of at most 0.2; a plan in twenty needs the query's own device alone."""
    return Recipe(queries=queries, plans=10, tiers=TIERS, largest=0.2, alone=0.05)


def schedule(policy: Priced, arrays: PlanArrays) -> float:
    """Return the part of the bound that was reached."""
    placement = Placement(arrays.machines.tolist(), {})
    prices = policy.of_arrays(arrays, placement)
    return float(arrays.benefit[list(placement.at)].sum()) / prices.bound


@pytest.mark.parametrize("queries", [1000, 10_000, 100_000])
@pytest.mark.parametrize(
    "policy", [Priced(effort=FILL_ONLY), Priced()], ids=["fill only", "improved"]
)
def test_priced_from_arrays(benchmark: BenchmarkFixture, policy: Priced, queries: int) -> None:
    arrays = arrays_of(recipe(queries), 7)
    reached = benchmark.pedantic(  # type: ignore[no-untyped-call]  # ships no types
        schedule, (policy, arrays), rounds=3
    )
    benchmark.extra_info["part of the bound"] = reached
    assert reached >= 0.98


def test_one_arrival_among_ten_thousand_live_queries(benchmark: BenchmarkFixture) -> None:
    drawn = problem_of(recipe(10_000), 7)
    live = LiveSchedule(drawn, Priced(effort=FILL_ONLY).schedule(drawn))
    gc.collect()
    gc.freeze()  # a full collection of a million objects is a pause of its own, once in a while
    comers = problem_of(recipe(1000), 8).candidates
    number = count()

    def comer() -> tuple[tuple[object, ...], dict[str, object]]:
        n = next(number)
        return (replace(comers[n % len(comers)], query_id=f"new{n}"),), {}

    benchmark.pedantic(  # type: ignore[no-untyped-call]  # as above
        live.arrive, setup=comer, rounds=500
    )
    assert validate(live.problem(), live.schedule()) == ()


def test_one_departure_among_ten_thousand_live_queries(benchmark: BenchmarkFixture) -> None:
    drawn = problem_of(recipe(10_000), 7)
    live = LiveSchedule(drawn, Priced(effort=FILL_ONLY).schedule(drawn))
    going = iter(sorted(live.served))
    benchmark.pedantic(  # type: ignore[no-untyped-call]  # as above
        live.leave, setup=lambda: ((next(going),), {}), rounds=100
    )


@pytest.mark.parametrize("queries", [60, 200, 600])
@pytest.mark.parametrize("policy", [Priced(), Ilp(time_limit_s=60.0)], ids=["priced", "ilp"])
def test_priced_beside_the_integer_program(
    benchmark: BenchmarkFixture, policy: Priced | Ilp, queries: int
) -> None:
    tiers = tuple(replace(t, machines=max(1, queries // 40), dedicated=False) for t in TIERS)
    problem = problem_of(Recipe(queries=queries, plans=10, tiers=tiers), 7)
    made = benchmark.pedantic(  # type: ignore[no-untyped-call]  # as above
        policy.schedule, (problem,), rounds=1
    )
    weight = {c.query_id: c.weight for c in problem.candidates}
    benchmark.extra_info["goodput"] = sum(weight[q] for q in made.by_query)
    assert validate(problem, made) == ()
