"""Choices of pools, beside every pool simulated."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from circinus.pipelines.errors import InvalidInput
from circinus.scheduler.dispatch.policies import dispatch_policy
from circinus.scheduler.pool.search import PoolSpace
from circinus.scheduler.simulation import choosing
from circinus.scheduler.simulation.choosing import (
    best_within,
    cheapest_for_rate,
    largest_for_budget,
)
from circinus.scheduler.simulation.draws import IN_TIME, OracleRates, SimulatedRates
from circinus.scheduler.simulation.engine import simulate
from circinus.scheduler.simulation.measurements import LatencyTable
from circinus.scheduler.simulation.pool_choice import ChoiceMethod, PoolQuestion
from circinus.scheduler.simulation.ribbon_choice import SimulatedShares

SIZES = np.array([100, 400, 1000])


def table(*speeds: float) -> LatencyTable:
    """Types that take so many seconds for a thousand items."""
    mean_s = np.outer(SIZES / 1000, speeds)
    kinds = tuple(f"t{i}" for i in range(len(speeds)))
    return LatencyTable(model="toy", kinds=kinds, batches=SIZES, mean_s=mean_s, std_s=0.1 * mean_s)


def question(**changed: Any) -> PoolQuestion:  # noqa: ANN401 - values of any field
    """Two types, of which the cheaper is late with the largest requests."""
    values: dict[str, Any] = {
        "table": table(1.0, 2.0),
        "prices": (1.0, 0.4),
        "qos_s": 1.2,
        "dispatch": "plan_ahead",
        "requests": 500,
        "most": 9,
    }
    return PoolQuestion(**{**values, **changed})


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"prices": (1.0,)}, "prices must be 2"),
        ({"prices": (1.0, -1.0)}, "price of t1 must be finite and >= 0"),
        ({"qos_s": 0.0}, "qos_s must be finite and > 0"),
        ({"dispatch": "best"}, "dispatch must be among plan_ahead"),
        ({"requests": 99}, "requests must be >= 100"),
        ({"seed": -1}, "seed must be >= 0"),
        ({"checks": 0}, "checks must be >= 1"),
        ({"most": 0}, "most must be >= 1"),
        ({"counts": (1,)}, "counts must be 2, or none"),
        ({"counts": (1, -1)}, "counts must be >= 0"),
    ],
)
def test_a_question_that_makes_no_sense_is_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        question(**changed)


def test_a_budget_that_pays_no_instance_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"budget must pay an instance.*costs 0.4 USD/h"):
        largest_for_budget(question(), 0.39)


def test_a_rate_of_nothing_is_refused() -> None:
    with pytest.raises(InvalidInput, match="rate must be finite and > 0"):
        cheapest_for_rate(question(), 0.0)


def test_the_published_methods_need_a_base_that_is_in_time() -> None:
    slow_first = question(table=table(2.0, 1.0), method=ChoiceMethod.KAIROS)
    with pytest.raises(InvalidInput, match=r"base type must be at most 1\.2 s"):
        largest_for_budget(slow_first, 3.0)


@pytest.mark.parametrize("method", [ChoiceMethod.SIMULATED, ChoiceMethod.BOUND])
def test_requests_that_are_late_everywhere_are_told(method: ChoiceMethod) -> None:
    hopeless = question(qos_s=0.5, method=method)
    for choice in (largest_for_budget(hopeless, 3.0), cheapest_for_rate(hopeless, 1.0)):
        assert choice.chosen is None
        assert "of the requests take longer than 500 ms on every type" in choice.reason
        assert choice.front == ()


def test_a_budget_that_pays_only_what_is_late_has_no_pool() -> None:
    choice = largest_for_budget(question(), 0.9)  # a base instance costs 1
    assert choice.chosen is None
    assert choice.reason == "no pool that can be paid has 99 % in time at any rate"


def test_a_rate_that_no_pool_reaches_is_told() -> None:
    choice = cheapest_for_rate(question(most=2), 1000.0)
    assert choice.chosen is None
    assert "at most 2 of a type" in choice.reason


def test_the_largest_rate_is_that_of_all_pools() -> None:
    asked = question()
    choice = largest_for_budget(asked, 3.0)
    space = PoolSpace.within_budget(("t0", "t1"), (1.0, 0.4), 3.0, most=9)
    measure = SimulatedRates(policy=dispatch_policy("plan_ahead"), draws=asked.draws(0))
    pools = [tuple(pool) for pool in space.pools[space.within(3.0)].tolist()]
    rates = {pool: measure.rate(pool) for pool in pools}
    assert choice.chosen is not None
    assert rates[choice.chosen.pool] == pytest.approx(max(rates.values()))
    assert (choice.looked_at, choice.chosen.price_usd_per_hour <= 3.0) == (len(pools), True)
    assert choice.tried < len(pools)
    assert choice.chosen in choice.front


def test_the_cheapest_pool_is_that_of_all_pools_that_are_in_time() -> None:
    asked, rate = question(), 5.0
    choice = cheapest_for_rate(asked, rate)
    space = PoolSpace.within_budget(("t0", "t1"), (1.0, 0.4), 8.0, most=9)
    measures = [
        SimulatedRates(policy=dispatch_policy("plan_ahead"), draws=asked.draws(i))
        for i in range(3)
    ]
    good = [
        space.cost(pool)
        for pool in map(tuple, space.pools[space.within(8.0)].tolist())
        if all(measure.in_time(pool, rate) >= IN_TIME for measure in measures)
    ]
    assert choice.chosen is not None
    assert choice.chosen.price_usd_per_hour == pytest.approx(min(good))
    assert choice.chosen.bound_rps >= rate


@pytest.mark.parametrize("method", [*ChoiceMethod])
def test_every_method_answers_and_says_how_sure_it_is(method: ChoiceMethod) -> None:
    asked = question(method=method)
    for choice in (largest_for_budget(asked, 3.0), cheapest_for_rate(asked, 4.0)):
        assert choice.chosen is not None
        assert (choice.chosen.rate_rps is None) == (not method.tries)
        assert (choice.tried > 0) == method.tries
        assert ("not simulated" in choice.sure) == (not method.tries)
        prices = [offer.price_usd_per_hour for offer in choice.front]
        assert prices == sorted(prices)


def test_one_type_only_is_as_many_as_the_budget_pays() -> None:
    alone = question(table=table(1.0), prices=(0.7,))
    choice = largest_for_budget(alone, 3.0)
    assert choice.chosen is not None
    assert choice.chosen.pool == (4,)


def test_free_instances_are_taken_first() -> None:
    free = question(prices=(1.0, 0.0), most=3)
    choice = largest_for_budget(free, 1.0)
    assert choice.chosen is not None
    assert choice.chosen.pool == (1, 3)
    nothing_paid = question(prices=(0.0, 0.0), most=3)
    choice = cheapest_for_rate(nothing_paid, 3.0)
    assert choice.chosen is not None
    assert choice.chosen.price_usd_per_hour == 0


def test_where_few_are_free_others_serve_the_rest() -> None:
    """Unlike where the free type may be had without end: then nobody pays for another."""
    few = question(prices=(1.0, 0.0), counts=(9, 1))
    choice = cheapest_for_rate(few, 5.0)
    assert choice.chosen is not None
    paid, free = choice.chosen.pool
    assert paid > 0
    assert free <= 1


@pytest.mark.parametrize("seed", range(5))
def test_counts_bound_the_cheapest_pool_and_the_largest_rate(seed: int) -> None:
    counts = (1 + seed % 3, 4)
    asked, rate = question(counts=counts, seed=seed, requests=2000), 0.5
    space = PoolSpace(types=("t0", "t1"), prices=(1.0, 0.4), most=counts)
    pools = list(map(tuple, space.pools.tolist()))
    measures = [
        SimulatedRates(policy=dispatch_policy("plan_ahead"), draws=asked.draws(i))
        for i in range(3)
    ]
    most = max(measures[0].rate(pool) for pool in pools)
    largest = best_within(asked, 50.0, space.dearest)
    assert largest.chosen is not None
    assert measures[0].rate(largest.chosen.pool) == pytest.approx(most, rel=0.01)  # bisected
    assert "the largest rate of" in largest.reason
    good = [
        space.cost(pool)
        for pool in pools
        if all(m.in_time(pool, rate) >= IN_TIME for m in measures)
    ]
    cheapest = best_within(asked, rate, space.dearest)
    assert cheapest.chosen is not None
    if good:
        assert cheapest.chosen.price_usd_per_hour == pytest.approx(min(good))
    else:
        assert cheapest.chosen == largest.chosen


def test_the_cheapest_types_are_looked_at_where_all_are_too_many() -> None:
    # at most one of each of 20 types, the last of which cannot be paid: 2^18 pools are few enough
    prices = tuple(1.0 + 0.05 * i for i in range(20))
    many = question(table=table(*[1.0] * 20), prices=prices, method=ChoiceMethod.BOUND)
    choice = largest_for_budget(many, 1.92)
    assert choice.chosen is not None
    assert choice.types == tuple(f"t{i}" for i in range(18))
    assert choice.left_out[0].startswith("t18: more types than can be looked at together, and 1.9")
    assert choice.left_out[1] == "t19: one costs more than there is"


def test_a_search_that_takes_too_many_trials_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choosing, "MOST_TRIED", 3)
    choice = cheapest_for_rate(question(), 5.0)
    assert (choice.chosen, choice.tried) == (None, 3)
    assert choice.reason.startswith("none of 3 pools that were simulated")


def test_equal_questions_have_equal_answers_and_another_seed_other_draws() -> None:
    first, second = (largest_for_budget(question(sampled=True), 2.5) for _ in range(2))
    assert first == second
    other = largest_for_budget(question(sampled=True, seed=1), 2.5)
    assert other.chosen is not None
    assert first.chosen is not None
    assert other.chosen.rate_rps != first.chosen.rate_rps


@pytest.mark.parametrize("seed", range(4))
def test_the_oracle_is_the_best_of_all_pools_for_who_knows_all_requests(seed: int) -> None:
    known = question(
        table=table(1.0, 1.15, 2.0),
        prices=(1.0, 0.7, 0.4),
        method=ChoiceMethod.ORACLE,
        seed=seed,
        most=4,
    )
    kinds, budget, rate = known.table.kinds, 3.5, 6.0
    space = PoolSpace(types=kinds, prices=known.prices, most=(4, 4, 4))
    rates = [OracleRates(draws=known.draws(place)) for place in range(3)]
    pools = list(map(tuple, space.pools.tolist()))
    largest = largest_for_budget(known, budget)
    assert largest.chosen is not None
    within = [rates[0].rate(pool) for pool in pools if space.cost(pool) <= budget + 1e-9]
    assert rates[0].rate(largest.chosen.pool) == pytest.approx(max(within))
    assert largest.tried <= len(within)
    cheapest = cheapest_for_rate(known, rate)
    assert cheapest.chosen is not None
    good = [space.cost(pool) for pool in pools if all(r.rate(pool) >= rate for r in rates)]
    assert cheapest.chosen.price_usd_per_hour == pytest.approx(min(good))
    assert "no dispatcher reaches it" in cheapest.sure


def test_no_dispatcher_serves_more_than_the_oracle() -> None:
    known = largest_for_budget(question(method=ChoiceMethod.ORACLE), 3.0)
    served = largest_for_budget(question(), 3.0)
    assert known.chosen is not None
    assert served.chosen is not None
    assert (served.chosen.rate_rps or 0) < (known.chosen.rate_rps or 0)


def test_an_oracle_that_draws_luck_is_refused() -> None:
    with pytest.raises(InvalidInput, match="sampled must be false with the method oracle, got Tr"):
        question(method=ChoiceMethod.ORACLE, sampled=True)


@pytest.mark.parametrize("seed", range(2))
def test_ribbon_ends_at_the_cheapest_pool_in_time(seed: int) -> None:
    """The cheaper type is late with the largest alone, by less than 30 %: both are looked at."""
    values: dict[str, Any] = {"table": table(1.0, 1.5), "prices": (1.0, 0.4), "seed": seed}
    best_of_all = cheapest_for_rate(question(**values), 4.0)
    ribbon = cheapest_for_rate(question(**values, method=ChoiceMethod.RIBBON), 4.0)
    assert ribbon.chosen is not None
    assert best_of_all.chosen is not None
    assert ribbon.types == ("t0", "t1")
    price = ribbon.chosen.price_usd_per_hour
    assert price == pytest.approx(best_of_all.chosen.price_usd_per_hour)


@pytest.mark.parametrize("seed", [0, 3])
def test_ribbon_looks_at_as_many_as_all_draws_need(seed: int) -> None:
    values: dict[str, Any] = {"table": table(1.1), "prices": (0.6,), "qos_s": 1.3, "seed": seed}
    values |= {"requests": 300, "most": 60}
    assert cheapest_for_rate(question(**values, method=ChoiceMethod.RIBBON), 40.0).chosen


def test_ribbon_looks_at_types_that_there_are() -> None:
    choice = cheapest_for_rate(question(counts=(4, 0), method=ChoiceMethod.RIBBON), 3.0)
    assert choice.types == ("t0",)


def test_ribbon_leaves_out_types_that_are_late_alone() -> None:
    choice = cheapest_for_rate(question(method=ChoiceMethod.RIBBON), 5.0)
    assert choice.types == ("t0",)
    assert choice.left_out[0].startswith("t1: not among the three types that serve the most")


def test_ribbon_needs_a_type_that_is_in_time_alone() -> None:
    mean_s = np.array([[2.0, 0.2], [1.0, 0.5], [1.0, 2.0]])  # each is late with one size
    crossed = replace(table(1.0, 2.0), mean_s=mean_s, std_s=0 * mean_s)
    late = question(table=crossed, method=ChoiceMethod.RIBBON)
    with pytest.raises(InvalidInput, match=r"qos_s must be such that a type alone has 99%"):
        cheapest_for_rate(late, 1.0)


def test_ribbon_that_may_try_few_pools_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choosing, "MOST_TRIED", 2)
    choice = cheapest_for_rate(question(method=ChoiceMethod.RIBBON), 5.0)
    assert choice.tried == 2
    assert "no more were tried" in choice.reason or "none of 2 pools" in choice.reason


def test_a_trial_that_ends_early_has_the_share_of_its_part() -> None:
    """One instance at twenty times what it serves: nearly all are late, and so is the part."""
    draws = question(requests=2000).draws(0)
    shares = SimulatedShares(policy=dispatch_policy("fcfs"), draws=(draws,), rate_rps=40.0)
    trial = shares((1, 0))
    assert trial.ended_early
    whole = SimulatedRates(policy=dispatch_policy("fcfs"), draws=draws)
    scenario = whole.draws.scenarios((1, 0), None)(40.0)
    assert trial.value == pytest.approx(simulate(scenario, whole.policy).in_time, abs=0.1)
    enough = replace(shares, rate_rps=4.0)((9, 0))  # of 18/s
    assert not enough.ended_early
