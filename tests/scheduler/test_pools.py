"""Kairos+ on simulated rates, beside every pool measured."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circinus.pipelines.errors import InvalidInput
from circinus.scheduler.dispatch.baselines import FcfsDispatch
from circinus.scheduler.dispatch.plan_ahead import PlanAhead
from circinus.scheduler.dispatch.policies import dispatch_policy
from circinus.scheduler.pool.kairos_bound import kairos_bounds, kairos_figures
from circinus.scheduler.pool.search import (
    CheapestInTime,
    KairosPlus,
    LargestRate,
    Pool,
    PoolGoal,
    PoolSpace,
    PoolTrial,
    Trials,
    best,
    contained,
    search,
)
from circinus.scheduler.pool.throughput_bounds import throughput_bounds
from circinus.scheduler.simulation.draws import IN_TIME, LoadDraws, SimulatedRates, draw
from circinus.scheduler.simulation.loads import load_of, ribbon_batches
from circinus.scheduler.simulation.measurements import LatencyTable
from circinus.scheduler.simulation.trying import (
    MOST_BURSTY,
    SMOOTHEST,
    DispatchedTrials,
    FirstComeTrials,
    TrialDraws,
    TrialLoad,
    trial_draws,
)
from tests.scheduler.kairos_data import BUDGET, QOS_S, latencies, space


def draws(requests: int = 600) -> LoadDraws:
    """Two types: 0.1 and 0.2 s a hundred items; the second is late with the largest."""
    sizes = np.array([100, 400, 1000])
    table = LatencyTable(
        model="toy",
        kinds=("base", "slow"),
        batches=sizes,
        mean_s=np.outer(sizes / 1000, [1.0, 2.0]),
        std_s=np.zeros((3, 2)),
    )
    return draw(table, 1.2, load_of(), requests, 5, sampled=False)


def three_dollars() -> PoolSpace:
    """Up to three of one, six of the other."""
    return PoolSpace.within_budget(("base", "slow"), (1.0, 0.5), 3.0, most=9)


def goal_of(space: PoolSpace, given: LoadDraws, budget: float) -> LargestRate:
    bounds = throughput_bounds(
        given.share, given.table.mean_s, space.pools, given.qos_s, in_time=IN_TIME
    )
    return LargestRate(space=space, budget_usd_per_hour=budget, bounds=bounds)


def test_a_pool_that_serves_nothing_in_time_has_no_rate() -> None:
    measure = SimulatedRates(policy=dispatch_policy("plan_ahead"), draws=draws())
    assert measure((0, 3)) == PoolTrial((0, 3), 0.0)  # large ones are late there


def test_a_pool_that_is_worse_ends_early() -> None:
    measure = SimulatedRates(policy=dispatch_policy("plan_ahead"), draws=draws())
    assert measure((2, 0)).value > 0
    assert measure((1, 0)) == PoolTrial((1, 0), 0.0, ended_early=True)


@pytest.mark.parametrize("policy", ["plan_ahead", "kairos"])
def test_the_best_of_all_pools_is_found_in_the_order_of_bounds(policy: str) -> None:
    space, given = three_dollars(), draws()
    goal, rates = (
        goal_of(space, given, 3.0),
        SimulatedRates(policy=dispatch_policy(policy), draws=given),
    )
    trials = search(goal, KairosPlus(bounds=goal.bounds), rates, most=99)
    found = best(goal, trials)
    all_rates = {
        pool: rates.rate(pool) for pool in map(tuple, space.pools[space.within(3.0)].tolist())
    }
    assert found is not None
    assert found.value == pytest.approx(max(all_rates.values()))
    assert len(trials) < len(all_rates)


def test_bounds_come_down_and_sub_pools_are_left_out() -> None:
    goal = goal_of(three_dollars(), draws(), 3.0)
    asked: list[Pool] = []

    def measure(pool: Pool) -> PoolTrial:
        asked.append(pool)
        return PoolTrial(pool, 0.0)

    search(goal, KairosPlus(bounds=goal.bounds), measure, most=99)
    bounds = [goal.bounds[goal.space.place(pool)] for pool in asked]
    assert bounds == sorted(bounds, reverse=True)
    assert (1, 4) in asked
    assert not {(1, 3), (1, 2), (0, 4)} & {*asked}


def test_full_pools_are_those_to_which_nothing_can_be_added() -> None:
    space = three_dollars()
    full = {tuple(pool) for pool in space.pools[space.full(2.2)].tolist()}
    assert full == {(0, 4), (1, 2), (2, 0)}  # of 1 and 0.5 USD


@pytest.mark.parametrize(("model", "pool"), [("rm2", (1, 0, 13, 0)), ("mtwnd", (2, 0, 9, 0))])
@pytest.mark.parametrize("policy", ["plan_ahead", "kairos"])
def test_few_trials_find_the_best_pool_of_a_measured_model(
    model: str, pool: Pool, policy: str
) -> None:
    given = draw(latencies(model), QOS_S[model], load_of(), 3000, 9001, sampled=False)
    goal = goal_of(space(), given, BUDGET)
    rates = SimulatedRates(policy=dispatch_policy(policy), draws=given)
    trials = search(goal, KairosPlus(bounds=goal.bounds), rates, most=99)
    found = best(goal, trials)
    assert found is not None
    # of long runs `pool` is the best; of short ones another may be, by little
    assert found.value >= rates.rate(pool)
    assert len(trials) <= 20  # of 696


@pytest.mark.parametrize("policy", ["plan_ahead", "kairos"])
def test_equation_15_is_no_bound(policy: str) -> None:
    given = draw(latencies("wnd"), QOS_S["wnd"], load_of(), 20_000, 9001, sampled=False)
    figures = kairos_figures(given.share, given.table.mean_s, given.qos_s)
    (closed,) = kairos_bounds(figures, np.array([[4, 8, 0, 0]])).tolist()
    rates = SimulatedRates(policy=dispatch_policy(policy), draws=given)
    assert rates.in_time((4, 8, 0, 0), 1.01 * closed) >= IN_TIME
    assert closed < given.bound_rps((4, 8, 0, 0))


MEAN_S = 0.01 * (1 + np.arange(10, 501, 10)[:, None] / 100) * np.array([0.4, 1.0, 1.6])
TABLE = LatencyTable(
    model="m",
    kinds=("a", "b", "c"),
    batches=np.arange(10, 501, 10),
    mean_s=MEAN_S,
    std_s=0.05 * MEAN_S,
)


def drawn(**changed: Any) -> TrialDraws:  # noqa: ANN401
    given: dict[str, Any] = {"qos_s": 0.04, "rate_rps": 150.0, "requests": 1000}
    streams = changed.pop("streams", 4)
    load = TrialLoad(mix=ribbon_batches, **(given | changed))
    return trial_draws(TABLE, load, np.random.default_rng(3), streams=streams)


DRAWS = drawn()
POOLS = st.tuples(*[st.integers(0, 3)] * 3).filter(any)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"qos_s": 0.0}, "qos_s must be finite and > 0"),
        ({"rate_rps": 0.0}, "rate_rps must be finite and > 0"),
        ({"requests": 99}, "requests must be >= 100"),
        ({"streams": 1}, "streams must be >= 2"),
    ],
)
def test_numbers_out_of_range_are_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        drawn(**changed)


@settings(deadline=None)
@given(
    POOLS,
    st.tuples(*[st.floats(0.7, 1.4)] * 3),
    st.floats(0.0, 1.0),
    st.integers(0, 3),
    st.floats(0.5, 1.0),
)
def test_the_fast_loop_does_what_the_event_loop_does(
    pool: tuple[int, ...],
    scale: tuple[float, ...],
    variability: float,
    stream: int,
    enough: float,
) -> None:
    run = (np.array([pool]), np.array([scale]), np.array([variability]), np.array([stream]))
    fast = FirstComeTrials(draws=DRAWS)
    wanted = DispatchedTrials(draws=DRAWS, policy=FcfsDispatch()).in_time(*run)
    assert fast.in_time(*run) == pytest.approx(wanted, abs=1e-12)
    stopped = fast.in_time(*run, enough)
    same = stopped == pytest.approx(wanted, abs=1e-12)
    assert same or (stopped < enough and wanted < enough)


def test_runs_that_are_asked_together_are_those_asked_one_by_one() -> None:
    fast, count = FirstComeTrials(draws=DRAWS), 6
    rng = np.random.default_rng(5)
    pools, stream = rng.integers(1, 4, (count, 3)), rng.integers(0, 4, count)
    scale, variability = rng.uniform(0.8, 1.2, (count, 3)), rng.random(count)
    together = fast.in_time(pools, scale, variability, stream)
    for i in range(count):
        at = slice(i, i + 1)
        assert fast.in_time(pools[at], scale[at], variability[at], stream[at]) == together[at]


def test_gaps_fit_the_rate_and_the_variability() -> None:
    many = drawn(requests=20_000, streams=2)
    for variability, expected in ((0.0, SMOOTHEST), (0.5, 1.0), (1.0, MOST_BURSTY)):
        gaps = np.diff(many.arrived_s(0, variability), prepend=0.0)
        # 20,000 gaps: standard errors 1.4 % of the mean at most, 6 % of its square's
        assert gaps.mean() == pytest.approx(1 / 150, rel=0.06)
        assert gaps.var() / gaps.mean() ** 2 == pytest.approx(expected, rel=0.25)


def test_slower_instances_and_burstier_arrivals_make_more_late() -> None:
    fast = FirstComeTrials(draws=drawn(requests=5000))
    pools, none = np.array([[2, 0, 0]] * 3), np.zeros(3, dtype=np.int64)
    scale = np.array([[0.9], [1.0], [1.1]]) * np.ones(3)
    slower = fast.in_time(pools, scale, np.full(3, 0.5), none)
    assert (np.diff(slower) < 0).all()
    burstier = fast.in_time(pools, np.ones((3, 3)), np.array([0.0, 0.5, 1.0]), none)
    assert (np.diff(burstier) < 0).all()


def test_a_better_dispatcher_has_more_in_time() -> None:
    run = (np.array([[2, 1, 2]]), np.ones((1, 3)), np.array([0.5]), np.array([1]))
    first_come = FirstComeTrials(draws=DRAWS).in_time(*run)
    assert DispatchedTrials(draws=DRAWS, policy=PlanAhead()).in_time(*run) > first_come


COUNTS = st.lists(st.integers(0, 3), min_size=1, max_size=3).filter(any)


def pools_space(**changed: Any) -> PoolSpace:  # noqa: ANN401 - values of any field
    values: dict[str, Any] = {"types": ("a", "b"), "prices": (2.0, 1.0), "most": (2, 3)}
    return PoolSpace(**{**values, **changed})


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"types": (), "prices": (), "most": ()}, "types"),
        ({"types": ("a", "a")}, "types"),
        ({"prices": (1.0,)}, "prices"),
        ({"prices": (1.0, -1.0)}, "prices of b"),
        ({"most": (0, 0)}, "most"),
        ({"most": (-1, 2)}, "most of a"),
        ({"most": (1000, 1000)}, "most"),
    ],
)
def test_what_is_no_space_is_told_by_its_field(changed: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidInput) as told:
        pools_space(**changed)
    assert told.value.violations[0].field == field


@pytest.mark.parametrize("pool", [(0, 0), (3, 0), (1,), (1, -1)])
def test_a_pool_outside_the_space_has_no_place(pool: tuple[int, ...]) -> None:
    with pytest.raises(InvalidInput, match="pool"):
        pools_space().place(pool)


def test_a_budget_that_pays_for_nothing_is_told_what_the_cheapest_costs() -> None:
    with pytest.raises(InvalidInput, match=r"the cheapest costs 1 USD/h, got 0\.5"):
        PoolSpace.within_budget(("a", "b"), (2.0, 1.0), 0.5, 10)


def test_a_budget_pays_for_so_many_of_each_type_and_any_number_that_cost_nothing() -> None:
    # 0.3 / 0.1 is 2.9999999999999996.
    made = PoolSpace.within_budget(("a", "b", "c"), (0.1, 0.2, 0.0), 0.3, 10)
    assert made.most == (3, 1, 10)


@given(COUNTS)
def test_all_pools_but_the_empty_one_are_there_once_each_at_its_place(most: list[int]) -> None:
    names = tuple("abc"[: len(most)])
    made = PoolSpace(types=names, prices=tuple(range(1, len(most) + 1)), most=tuple(most))
    every = [pool for pool in product(*(range(n + 1) for n in most)) if any(pool)]
    assert [tuple(pool) for pool in made.pools.tolist()] == every
    assert [made.place(pool) for pool in every] == list(range(len(every)))
    assert made.costs.tolist() == [made.cost(pool) for pool in every]


def test_contained_is_at_most_as_many_of_each_type() -> None:
    pools = np.array([[1, 1], [2, 0], [0, 3], [2, 1]])
    assert contained(pools, (2, 1)).tolist() == [True, True, False, True]


def cheapest(**changed: Any) -> CheapestInTime:  # noqa: ANN401 - values of any field
    return CheapestInTime(space=pools_space(), **changed)


def test_a_pool_in_time_is_worth_more_than_any_that_is_late_and_the_more_the_cheaper() -> None:
    goal = cheapest()
    late, dear, cheap = (
        goal.worth(PoolTrial((1, 0), 0.98)),
        goal.worth(PoolTrial((2, 3), 0.99)),
        goal.worth(PoolTrial((0, 1), 1.0)),
    )
    assert (late, dear, cheap) == (0.5 * 0.98 / 0.99, 0.5, 0.5 + 0.5 * (1 - 1 / 7))


def test_pools_that_cost_nothing_are_all_worth_the_most() -> None:
    free = CheapestInTime(space=pools_space(prices=(0.0, 0.0)))
    assert free.worth(PoolTrial((1, 0), 1.0)) == 1.0


def test_a_trial_that_ended_early_is_not_feasible_whatever_its_share() -> None:
    assert not cheapest().feasible(PoolTrial((1, 0), 1.0, ended_early=True))


def test_prices_prune_what_is_as_dear_as_a_feasible_pool() -> None:
    hopeless = cheapest().hopeless([PoolTrial((0, 2), 1.0)])
    left = cheapest().space.pools[~hopeless].tolist()
    assert left == [[0, 1]]


def test_only_a_clear_violation_prunes_what_it_contains_and_only_if_asked_to() -> None:
    clear, slight = PoolTrial((2, 1), 0.5), PoolTrial((2, 1), 0.985)
    assert cheapest().hopeless([clear]).sum() == 1
    assert cheapest(prunes_below=0.01).hopeless([slight]).sum() == 1
    assert cheapest(prunes_below=0.01).hopeless([clear]).sum() == 5  # (0,1) to (2,1)


class _InOrder:
    """Proposes the first pool that is not hopeless."""

    def propose(self, goal: PoolGoal, trials: Trials) -> tuple[int, ...] | None:
        left = np.flatnonzero(~goal.hopeless(trials))
        return tuple(goal.space.pools[left[0]].tolist()) if len(left) else None


@given(st.lists(st.floats(0.1, 9.0), min_size=3, max_size=3), st.floats(1.0, 20.0))
def test_a_search_to_the_end_finds_the_cheapest_pool_that_is_in_time(
    work: list[float], needed: float
) -> None:
    three = PoolSpace(types=("a", "b", "c"), prices=(3.0, 2.0, 1.5), most=(2, 2, 2))
    goal = CheapestInTime(space=three, prunes_below=0.01)

    def measure(pool: tuple[int, ...]) -> PoolTrial:  # monotone: pruning takes nothing away
        return PoolTrial(pool, min(1.0, sum(np.multiply(pool, work)) / needed))

    trials = search(goal, _InOrder(), measure, 100)
    enough = [pool for pool in map(tuple, three.pools.tolist()) if measure(pool).value >= 0.99]
    found = best(goal, trials)
    assert (found is None) == (not enough)
    if found is not None:
        assert three.cost(found.pool) == min(map(three.cost, enough))


def test_bounds_of_another_shape_are_refused() -> None:
    with pytest.raises(InvalidInput, match="bounds"):
        LargestRate(space=pools_space(), budget_usd_per_hour=3.0, bounds=np.ones(3))


def test_a_budget_the_bound_and_what_was_tried_leave_few_pools_for_the_largest_rate() -> None:
    pools = pools_space().pools
    goal = LargestRate(
        space=pools_space(), budget_usd_per_hour=4.0, bounds=pools @ np.array([10.0, 4.0])
    )
    assert goal.worth(PoolTrial((2, 0), 10.0)) == 0.5
    left = [tuple(p) for p in pools[~goal.hopeless([PoolTrial((1, 1), 9.0)])].tolist()]
    assert left == [(0, 3), (1, 2), (2, 0)]
