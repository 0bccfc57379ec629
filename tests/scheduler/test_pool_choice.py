from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from circinus.pipelines.errors import InvalidInput
from circinus.scheduler.dispatch.policies import dispatch_policy
from circinus.scheduler.pool.pools import PoolSpace
from circinus.scheduler.simulation.draws import IN_TIME, LoadDraws, allowable_rate, draw
from circinus.scheduler.simulation.engine import simulate
from circinus.scheduler.simulation.loads import load_of
from circinus.scheduler.simulation.measurements import LatencyTable, parse_latencies
from circinus.scheduler.simulation.pool_choice import PoolChooser

PRICES = (1.0, 0.3)
QOS_S = 0.15


@cache
def table() -> LatencyTable:
    """The base takes 10 ms + 0.05 ms per item, the other four times as long: large ones late."""
    rows = [
        f"toy,{name},{batch},{factor * (10 + 0.05 * batch)},0"
        for name, factor in (("base", 1), ("slow", 4))
        for batch in range(10, 1001, 10)
    ]
    return parse_latencies(["model,instance,batch,mean_ms,std_ms", *rows], "toy")


@cache
def draws(seed: int, requests: int = 1000) -> LoadDraws:
    return draw(table(), QOS_S, load_of(), requests, seed, sampled=False)


def chooser(**changed: Any) -> PoolChooser:  # noqa: ANN401 - values of any field
    values: dict[str, Any] = {
        "space": PoolSpace(types=("base", "slow"), prices=PRICES, most=(3, 4)),
        "policy": dispatch_policy("plan_ahead"),
        "coarse": draws(1, 500),
        "fine": [draws(2), draws(3)],
    }
    return PoolChooser(**{**values, **changed})


def serves(pool: tuple[int, ...], rate: float, of: LoadDraws) -> bool:
    policy = dispatch_policy("plan_ahead")
    scenario = of.scenarios(pool, policy.level)(rate)
    return simulate(scenario, policy).in_time >= IN_TIME


def test_types_must_be_those_that_were_measured() -> None:
    other = PoolSpace(types=("base", "quick"), prices=PRICES, most=(3, 4))
    with pytest.raises(InvalidInput, match="must be the types that were measured: base, slow"):
        chooser(space=other)


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan")])
def test_a_rate_must_be_positive(rate: float) -> None:
    with pytest.raises(InvalidInput, match="rate"):
        chooser().cheapest_for(rate)


def test_a_rate_above_what_all_instances_could_serve_is_answered_with_what_they_could() -> None:
    choice = chooser().cheapest_for(1e4)
    assert choice.chosen is None
    assert choice.why.startswith("at most 3 base + 4 slow instances serve at most ")
    assert choice.front
    assert choice.simulated == 0


def test_where_requests_take_longer_than_they_may_the_answer_says_how_long() -> None:
    late = [draw(table(), 0.02, load_of(), 500, seed, sampled=False) for seed in (1, 2)]
    choice = chooser(coarse=late[0], fine=late[1:]).largest_for(2.0)
    assert choice.chosen is None
    assert "99% of the requests within 0.02 s: the largest takes 0.06 s" in choice.why


@pytest.mark.parametrize("rate", [10.0, 60.0, 120.0])
def test_the_chosen_pool_is_the_cheapest_of_all_that_serve_the_rate_on_every_draw(
    rate: float,
) -> None:
    made = chooser()
    every = [draws(1, 500), draws(2), draws(3)]
    enough = [
        pool
        for pool in map(tuple, made.space.pools.tolist())
        if all(serves(pool, rate, of) for of in every)
    ]
    choice = made.cheapest_for(rate)
    assert choice.chosen is not None
    assert choice.chosen.usd_per_hour == pytest.approx(min(map(made.space.cost, enough)))
    assert choice.chosen.pool in enough
    assert choice.chosen.bound_rps >= rate


@pytest.mark.parametrize("budget", [1.0, 2.2, 3.0])
def test_no_pool_within_the_budget_serves_clearly_more_than_the_chosen_one(budget: float) -> None:
    made = chooser()
    affordable = made.space.pools[made.space.within(budget)].tolist()
    policy = made.policy

    def rate(pool: tuple[int, ...]) -> float:
        of = draws(2)
        return allowable_rate(policy, of.scenarios(pool, None), 2 * of.bound_rps(pool) + 1)[0]

    choice = made.largest_for(budget)
    assert choice.chosen is not None
    assert choice.chosen.usd_per_hour <= budget + 1e-9
    assert rate(choice.chosen.pool) >= 0.97 * max(rate(tuple(pool)) for pool in affordable)
    assert choice.simulated <= len(affordable)


def test_along_the_front_more_money_serves_more_and_nothing_is_above_its_bound() -> None:
    front = chooser().largest_for(3.0).front
    assert len(front) > 2
    costs, rates = [each.usd_per_hour for each in front], [each.rate_rps for each in front]
    assert costs == sorted(costs)
    assert rates == sorted(rates)
    assert all(each.rate_rps <= 1.02 * each.bound_rps for each in front)


def test_instances_that_cost_nothing_are_chosen_as_any_other() -> None:
    free = PoolSpace(types=("base", "slow"), prices=(0.0, 0.0), most=(2, 2))
    choice = chooser(space=free).cheapest_for(60.0)
    assert choice.chosen is not None
    assert choice.chosen.usd_per_hour == 0.0
    assert serves(choice.chosen.pool, 60.0, draws(2))


def test_one_type_alone_is_a_space_too() -> None:
    alone = table().only(["base"])
    of = [draw(alone, QOS_S, load_of(), 500, seed, sampled=False) for seed in (1, 2)]
    one = PoolSpace(types=("base",), prices=(1.0,), most=(5,))
    choice = chooser(space=one, coarse=of[0], fine=of[1:]).cheapest_for(80.0)
    assert choice.chosen is not None
    fewer = (choice.chosen.pool[0] - 1,)
    assert not all(serves(fewer, 80.0, draws) for draws in of)


def test_a_choice_is_the_same_again() -> None:
    first, second = chooser().largest_for(2.2), chooser().largest_for(2.2)
    assert first == second
    assert np.isfinite(first.chosen.rate_rps if first.chosen else np.nan)
