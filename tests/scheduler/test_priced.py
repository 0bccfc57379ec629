from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.tiers import Tier
from circinus.scheduler.compiled.feasibility import Compiled, PlanArrays
from circinus.scheduler.policies.improvement import Effort
from circinus.scheduler.policies.priced import Priced
from circinus.scheduler.policies.prices import dual_prices
from circinus.scheduler.policies.registry import Greedy
from circinus.scheduler.problem import (
    Assignment,
    Candidate,
    Problem,
    SchedulingPolicy,
    Slice,
    validate,
)
from circinus.scheduler.rolling.ageing import Ageing, Standing, aged, overdue, preemptions
from circinus.studies.scheduling.problems import Recipe, Weights, arrays_of, problem_of
from tests.scheduler.problems import TWENTIETHS, best_goodput, candidate, cloud, plan, problems

TIERS = (Tier(name="edge", machines=3), Tier(name="cloud", machines=2))


def relaxed(arrays: PlanArrays) -> float:
    """The linear relaxation, solved with a variable for each plan."""
    queries, plans = len(arrays.benefit), len(arrays.owner)
    if not plans:
        return 0.0
    one = np.zeros((queries, plans))
    one[arrays.owner, np.arange(plans)] = 1.0
    found = linprog(
        -arrays.benefit[arrays.owner],
        A_ub=np.vstack((one, arrays.usage.T)),
        b_ub=np.concatenate((np.ones(queries), arrays.machines)),
    )
    assert found.fun is not None
    return -float(found.fun)


def test_without_queries_nothing_is_worth_anything() -> None:
    prices = dual_prices(Compiled.of(Problem(tiers=TIERS, candidates=())).arrays)
    assert (prices.bound, len(prices.favourite)) == (0.0, 0)


def test_without_shared_tiers_all_are_served() -> None:
    tier = Tier(name="device", machines=1, dedicated=True)
    queries = tuple(candidate(f"q{i}", plan("p", ("device", 0.5)), weight=2.0) for i in range(3))
    prices = dual_prices(Compiled.of(Problem(tiers=(tier,), candidates=queries)).arrays)
    assert (prices.bound, prices.per_machine.tolist()) == (6.0, [])


def test_a_tier_with_room_for_all_costs_nothing_and_a_scarce_one_what_the_last_would_pay() -> None:
    on_edge = (candidate("e", plan("p", ("edge", 0.5)), weight=5.0),)
    on_cloud = tuple(
        candidate(f"c{i}", plan("p", ("cloud", 1.0)), weight=float(w))
        for i, w in enumerate((9, 7, 4, 1))
    )
    arrays = Compiled.of(Problem(tiers=TIERS, candidates=on_edge + on_cloud)).arrays
    prices = dual_prices(arrays)
    edge, cloud_ = prices.per_machine
    assert edge == pytest.approx(0.0)
    assert 4.0 - 1e-6 <= cloud_ <= 7.0 + 1e-6  # whoever pays it is in, the next one is not
    assert prices.bound == pytest.approx(5 + 9 + 7)


@given(problem=problems())
@settings(deadline=None, max_examples=100)
def test_the_bound_is_the_value_of_the_relaxation(problem: Problem) -> None:
    arrays = Compiled.of(problem).arrays
    exact = relaxed(arrays)
    prices = dual_prices(arrays, precision=1e-7)
    assert prices.bound == pytest.approx(exact, rel=1e-5, abs=1e-5)
    assert (prices.per_machine >= -1e-9).all()
    owner = arrays.owner[prices.favourite] if len(arrays.owner) else np.zeros(0)
    assert owner.tolist() == list(range(len(arrays.benefit)))


@given(problem=problems(shares=TWENTIETHS, queries=3))
@settings(deadline=None, max_examples=60)
def test_no_schedule_is_better_than_the_bound(problem: Problem) -> None:
    assert dual_prices(Compiled.of(problem).arrays).bound >= best_goodput(problem) * (1 - 1e-9)


def test_the_start_from_a_sample_leaves_the_bound_as_it_is() -> None:
    # 20,000 queries on a thousandfold of the machines: twenty of each kind, a thousand times
    recipe = Recipe(queries=20, plans=4, tiers=TIERS)
    few = arrays_of(recipe, 5)
    times = 1000
    items = np.diff(few.item_first)
    many = PlanArrays(
        benefit=np.tile(few.benefit, times),
        first=np.arange(0, 20 * times * 4 + 1, 4),
        cost_usd_per_hour=np.tile(few.cost_usd_per_hour, times),
        calls_usd_per_hour=np.tile(few.calls_usd_per_hour, times),
        item_first=np.concatenate(([0], np.cumsum(np.tile(items, times)))),
        item_tier=np.tile(few.item_tier, times),
        item_parts=np.tile(few.item_parts, times),
        machines=few.machines * times,
    )
    assert dual_prices(many, 1e-6).bound == pytest.approx(times * relaxed(few), rel=1e-5)


def test_one_tier_is_sold_to_the_highest_benefit_per_share() -> None:
    queries = (
        candidate("dense", plan("p", ("cloud", 0.5)), weight=4.0),
        candidate("light", plan("p", ("cloud", 0.25)), weight=1.0),
        candidate("heavy", plan("p", ("cloud", 1.0)), weight=6.0),
    )
    prices = dual_prices(Compiled.of(Problem(tiers=(cloud(1),), candidates=queries)).arrays)
    assert prices.bound == pytest.approx(4 + 0.5 * 6)  # half of the heavy one
    assert prices.per_machine[0] == pytest.approx(6.0)


Row = tuple[int, float, list[tuple[int, int]]]

GENERATOR_TIERS = (
    Tier(name="device", machines=1, dedicated=True),
    Tier(name="edge", machines=4, price_usd_per_hour=0.75),
    Tier(name="cloud", machines=4, price_usd_per_hour=3.7),
)
RECIPE = Recipe(queries=12, plans=5, tiers=GENERATOR_TIERS)


@pytest.mark.parametrize(
    ("build", "rule"),
    [
        (lambda: replace(RECIPE, queries=-1), "queries must be finite and >= 0, got -1"),
        (lambda: replace(RECIPE, plans=0), "plans must be finite and > 0, got 0"),
        (lambda: replace(RECIPE, largest=0.01), r"largest must be in \[0.05, 1\], got 0.01"),
        (lambda: replace(RECIPE, alone=1.5), r"alone must be in \[0, 1\], got 1.5"),
        (lambda: replace(RECIPE, tiers=()), "tiers must have at least one tier"),
    ],
)
def test_bounds_of_the_settings(build: Callable[[], Recipe], rule: str) -> None:
    with pytest.raises(InvalidInput, match=rule):
        build()


def test_without_queries_the_problem_is_empty() -> None:
    assert problem_of(replace(RECIPE, queries=0), 1).candidates == ()


def test_a_seed_is_a_problem() -> None:
    assert problem_of(RECIPE, 3) == problem_of(RECIPE, 3)
    assert problem_of(RECIPE, 3) != problem_of(RECIPE, 4)


def rows(arrays: PlanArrays) -> list[Row]:
    """Plans as (query, money, items), in whatever order they come."""
    return sorted(
        (query, round(cost, 9), sorted(arrays.items(plan)))
        for plan, (query, cost) in enumerate(
            zip(arrays.owner.tolist(), arrays.cost_usd_per_hour.tolist(), strict=True)
        )
    )


@given(
    seed=st.integers(0, 10_000),
    alone=st.sampled_from([0.0, 0.3]),
    replicated=st.sampled_from([0.0, 0.5, 1.0]),
    largest=st.sampled_from([0.05, 0.2, 1.0]),
)
@settings(deadline=None, max_examples=30)
def test_arrays_are_the_problem_with_names(
    seed: int, alone: float, replicated: float, largest: float
) -> None:
    recipe = replace(RECIPE, alone=alone, replicated=replicated, largest=largest)
    made, named = arrays_of(recipe, seed), Compiled.of(problem_of(recipe, seed)).arrays
    for name in ("benefit", "first", "machines"):
        np.testing.assert_allclose(getattr(made, name), getattr(named, name), err_msg=name)
    assert rows(made) == rows(named)


@given(seed=st.integers(0, 10_000))
@settings(deadline=None, max_examples=20)
def test_every_plan_fits_empty_machines_and_uses_a_shared_tier(seed: int) -> None:
    recipe = replace(RECIPE, largest=0.5, weights=Weights.EQUAL)
    for query in problem_of(recipe, seed).candidates:
        assert query.weight == 1.0
        for choice in query.plans:
            assert {item.tier for item in choice.demand} & {"edge", "cloud"}
            assert all(0 < item.share <= 1 for item in choice.demand)
            assert all(item.share <= 0.5 for item in choice.demand if item.tier != "device")


PRICED = Priced(effort=Effort(steps=20, time_limit_s=60.0))
AGEING = Ageing(growth_s=10.0, limit_s=30.0, turn_s=15.0)


@pytest.mark.parametrize(
    ("build", "rule"),
    [
        (lambda: Ageing(growth_s=0.0), "growth_s must be finite and > 0, got 0.0"),
        (lambda: Ageing(limit_s=-1.0), "limit_s must be finite and >= 0, got -1.0"),
        (lambda: Ageing(turn_s=-1.0), "turn_s must be finite and >= 0, got -1.0"),
        (lambda: Standing(since_s=-1.0), "since_s must be finite and >= 0, got -1.0"),
    ],
)
def test_bounds_of_the_settings_of_ageing(build: Callable[[], object], rule: str) -> None:
    with pytest.raises(InvalidInput, match=rule):
        build()


def held(query: str, share: float = 1.0, machine: int = 0) -> Assignment:
    return Assignment(query_id=query, plan_id="p", machines=(Slice("cloud", machine, share),))


def one(query: str, share: float = 1.0, weight: float = 1.0) -> Candidate:
    return candidate(query, plan("p", ("cloud", share)), weight=weight)


def test_weight_grows_with_waiting() -> None:
    problem = Problem(tiers=(cloud(),), candidates=(one("a", weight=2.0), one("b", weight=3.0)))
    standings = {"a": Standing(since_s=20.0), "b": Standing(since_s=0.0)}
    grown = {c.query_id: c.weight for c in aged(problem, standings, AGEING).candidates}
    assert grown == {"a": 2.0 * (1 + 20 / 10), "b": 3.0}


def test_just_below_the_limit_a_query_waits_and_at_it_it_takes_its_place() -> None:
    problem = Problem(
        tiers=(cloud(),),
        candidates=(one("old", weight=9.0), one("late")),
        running={"old": held("old")},
    )
    for waited, served in [(29.9, "old"), (30.0, "late")]:
        asked = aged(problem, {"late": Standing(since_s=waited)}, AGEING)
        assert list(Greedy().schedule(asked).by_query) == [served]


def test_who_came_in_overdue_keeps_its_place_for_a_turn() -> None:
    problem = Problem(
        tiers=(cloud(),), candidates=(one("in"), one("late")), running={"in": held("in")}
    )
    for served_s, served in [(14.9, "in"), (15.0, "late")]:
        standings = {
            "in": Standing(since_s=served_s, overdue_entry=True),
            "late": Standing(since_s=99.0),
        }
        assert list(Greedy().schedule(aged(problem, standings, AGEING)).by_query) == [served]


def test_no_younger_claim_is_met_before_an_older_one() -> None:
    # the oldest needs both machines; one of them is protected
    both = candidate("both", plan("p", ("cloud", 1.0), ("cloud", 1.0)))
    problem = Problem(
        tiers=(cloud(2),),
        candidates=(both, one("safe"), one("small"), one("old")),
        running={"safe": held("safe"), "old": held("old", machine=1)},
    )
    standings = {
        "both": Standing(since_s=50.0),
        "small": Standing(since_s=40.0),
        "safe": Standing(since_s=1.0, overdue_entry=True),
    }
    assert overdue(problem, standings, AGEING) == ("both", "small")
    asked = aged(problem, standings, AGEING)
    assert set(Greedy().schedule(asked).by_query) == {"safe", "old"}


def test_a_query_that_could_never_fit_holds_up_nobody() -> None:
    problem = Problem(
        tiers=(cloud(),),
        candidates=(one("huge", 7.5), one("a"), one("b")),
        running={"b": held("b")},
    )
    standings = {"huge": Standing(since_s=99.0), "a": Standing(since_s=50.0)}
    assert list(Greedy().schedule(aged(problem, standings, AGEING)).by_query) == ["a"]


def test_a_higher_priority_takes_the_place_of_the_least_weight_below_it() -> None:
    urgent = replace(one("urgent", 0.5), priority=1)
    problem = Problem(
        tiers=(cloud(2),),
        candidates=(one("x", 1.0, 5.0), one("y", 1.0, 4.0), urgent),
        running={"x": held("x"), "y": held("y", machine=1)},
    )
    asked = aged(problem, {}, AGEING)
    schedule = Greedy().schedule(asked)
    assert set(schedule.by_query) == {"x", "urgent"}
    (record,) = preemptions(problem, schedule)
    assert (record.query_id, record.by, record.moved) == ("y", ("urgent",), False)
    assert record.words == "y was stopped for urgent."


def test_equal_priority_displaces_nobody() -> None:
    problem = Problem(
        tiers=(cloud(),), candidates=(one("x"), one("y", weight=99)), running={"x": held("x")}
    )
    assert list(Greedy().schedule(aged(problem, {}, AGEING)).by_query) == ["x"]


def test_a_claim_stays_within_its_tenants_quota() -> None:
    queries = [
        replace(one(q, 0.5, w), tenant=t)
        for q, w, t in [("a1", 5, "a"), ("b", 1, "b"), ("a2", 1, "a")]
    ]
    problem = Problem(
        tiers=(cloud(),),
        candidates=tuple(queries),
        running={"a1": held("a1", 0.5), "b": held("b", 0.5)},
        quotas={"a": 0.5},
    )
    asked = aged(problem, {"a2": Standing(since_s=60.0)}, AGEING)
    schedule = Greedy().schedule(asked)
    assert validate(asked, schedule) == ()
    assert set(schedule.by_query) == {"a2", "b"}  # its own tenant's query makes way, not b


@pytest.mark.parametrize("policy", [Greedy(), PRICED], ids=["greedy", "priced"])
@given(
    shapes=st.lists(
        st.lists(
            st.lists(st.sampled_from([0.3, 0.5, 0.6, 1.0]), min_size=1, max_size=2),
            min_size=1,
            max_size=2,
        ),
        min_size=1,
        max_size=6,
    ),
    weights=st.lists(st.sampled_from([0.001, 1.0, 1000.0]), min_size=6, max_size=6),
    interval=st.sampled_from([5.0, 20.0]),
)
@settings(deadline=None, max_examples=20)
def test_nobody_waits_longer_than_the_bound(
    policy: SchedulingPolicy,
    shapes: list[list[list[float]]],
    weights: list[float],
    interval: float,
) -> None:
    """Services that never end, on two machines, with unlike plans, weights and priorities."""
    tiers = (Tier(name="cloud", machines=2),)
    queries = tuple(
        replace(
            candidate(
                f"q{i}",
                *(
                    plan(f"p{j}", *(("cloud", s) for s in shares))
                    for j, shares in enumerate(plans)
                ),
                weight=weights[i],
            ),
            priority=i % 2,
        )
        for i, plans in enumerate(shapes)
    )
    since = {c.query_id: 0.0 for c in queries}
    entered: set[str] = set()
    running: dict[str, Assignment] = {}
    bound = AGEING.longest_wait_s(len(queries), interval)
    now = 0.0
    while now < 2 * bound:
        now += interval
        problem = Problem(tiers=tiers, candidates=queries, running=running)
        standings = {
            q: Standing(since_s=now - at, overdue_entry=q in entered) for q, at in since.items()
        }
        late = overdue(problem, standings, AGEING)
        asked = aged(problem, standings, AGEING)
        schedule = policy.schedule(asked)
        assert validate(asked, schedule) == ()
        for query in since:
            assert query in running or now - since[query] <= bound
            if (query in running) != (query in schedule.by_query):
                since[query] = now
        entered = {q for q in schedule.by_query if q in entered or q in late}
        running = schedule.by_query
