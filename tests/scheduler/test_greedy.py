from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circinus.pipelines.model.plan import DemandItem
from circinus.pipelines.model.tiers import Tier
from circinus.scheduler.compiled.placement import FreeShares, Placed, Placement, empty, fit
from circinus.scheduler.policies.registry import Greedy, Ranking
from circinus.scheduler.problem import PARTS, Assignment, Problem, Slice, validate
from tests.scheduler.problems import (
    TWENTIETHS,
    best_goodput,
    candidate,
    cloud,
    occupied,
    plan,
    problems,
)

DEVICE = Tier(name="device", machines=1, dedicated=True)


def served(problem: Problem, policy: Greedy | None = None) -> dict[str, str]:
    """{query: plan}, after the schedule has been validated."""
    schedule = (policy or Greedy()).schedule(problem)
    assert validate(problem, schedule) == ()
    return {assignment.query_id: assignment.plan_id for assignment in schedule.assignments}


def test_nobody_is_served_without_machines() -> None:
    problem = Problem(tiers=(cloud(0),), candidates=(candidate("a", plan("p", ("cloud", 0.05))),))
    assert served(problem) == {}


def test_an_item_is_not_split_over_machines() -> None:
    half = [candidate(f"h{i}", plan("p", ("cloud", 0.5)), weight=9.0) for i in range(2)]
    tight = candidate("tight", plan("p", ("cloud", 0.6)), weight=1.0)
    # 0.6 + 0.5 + 0.5 = 1.6 <= 2 in total, but the halves share a machine only by best fit
    assert served(Problem(tiers=(cloud(2),), candidates=(*half, tight))) == {
        "h0": "p",
        "h1": "p",
        "tight": "p",
    }
    third = candidate("h2", plan("p", ("cloud", 0.5)), weight=9.0)
    # the halves leave 0 + 0.5: nothing holds 0.6
    assert "tight" not in served(Problem(tiers=(cloud(2),), candidates=(*half, third, tight)))


def test_the_best_ratio_of_weight_to_demand_goes_first() -> None:
    heavy = candidate("heavy", plan("p", ("cloud", 1.0)), weight=3.0)  # 3.0 per machine
    light = candidate("light", plan("p", ("cloud", 0.2)), weight=1.0)  # 5.0 per machine
    assert served(Problem(tiers=(cloud(),), candidates=(heavy, light))) == {"light": "p"}


def test_a_query_takes_its_next_plan_when_the_best_does_not_fit() -> None:
    tiers = (Tier(name="edge", machines=1), cloud(1))
    a = candidate("a", plan("p", ("edge", 0.6)), weight=2.0)
    b = candidate("b", plan("small", ("edge", 0.5)), plan("large", ("cloud", 0.9)))
    assert served(Problem(tiers=tiers, candidates=(a, b))) == {"a": "p", "b": "large"}


def test_a_querys_own_machines_do_not_count_as_demand() -> None:
    own = plan("own", ("device", 1.0), ("cloud", 0.1))
    shared = plan("shared", ("cloud", 0.2))
    problem = Problem(tiers=(DEVICE, cloud()), candidates=(candidate("a", own, shared),))
    assert served(problem) == {"a": "own"}


def test_among_equal_ratios_weight_then_cost_then_ids_decide() -> None:
    light = candidate("a", plan("p", ("cloud", 0.5)), weight=1.0)
    heavy = candidate("b", plan("p", ("cloud", 1.0)), weight=2.0)
    assert served(Problem(tiers=(cloud(),), candidates=(light, heavy))) == {"b": "p"}
    dear = candidate("a", plan("p", ("cloud", 1.0), cost=2.0))
    cheap = candidate("b", plan("p", ("cloud", 1.0), cost=1.0))
    assert served(Problem(tiers=(cloud(),), candidates=(dear, cheap))) == {"b": "p"}
    twins = [candidate(q, plan("z", ("cloud", 1.0)), plan("y", ("cloud", 1.0))) for q in "dc"]
    assert served(Problem(tiers=(cloud(),), candidates=tuple(twins))) == {"c": "y"}


def test_by_money_the_cheapest_plan_goes_first_however_large() -> None:
    spread = plan("spread", ("edge", 1.0), ("edge", 1.0), cost=1.0)
    dense = plan("dense", ("cloud", 0.5), cost=3.0)
    tiers = (Tier(name="edge", machines=9), cloud(9))
    problem = Problem(tiers=tiers, candidates=(candidate("a", spread, dense),))
    assert served(problem) == {"a": "dense"}
    assert served(problem, Greedy(ranking=Ranking.MONEY)) == {"a": "spread"}


def test_a_running_query_keeps_its_machine_though_a_better_one_comes() -> None:
    old = candidate("old", plan("p", ("cloud", 0.8)))
    new = candidate("new", plan("p", ("cloud", 0.3)), weight=100.0)
    running = {"old": Assignment(query_id="old", plan_id="p", machines=(Slice("cloud", 1, 0.8),))}
    problem = Problem(tiers=(cloud(2),), candidates=(new, old), running=running)
    schedule = Greedy().schedule(problem)
    assert schedule.by_query["old"] == running["old"]
    assert schedule.by_query["new"].machines == (Slice("cloud", 0, 0.3),)


def test_a_running_query_moves_only_when_its_machine_is_gone() -> None:
    old = candidate("old", plan("p", ("cloud", 0.8)), plan("q", ("cloud", 0.1)))
    new = candidate("new", plan("p", ("cloud", 0.3)), weight=100.0)
    running = {"old": Assignment(query_id="old", plan_id="p", machines=(Slice("cloud", 1, 0.8),))}
    problem = Problem(tiers=(cloud(1),), candidates=(new, old), running=running)
    schedule = Greedy().schedule(problem)
    assert schedule.by_query["old"].machines == (Slice("cloud", 0, 0.8),)
    assert list(schedule.waiting) == ["new"]


def test_a_running_query_without_room_is_told_that_it_lost_its_place() -> None:
    running = {"old": Assignment(query_id="old", plan_id="p", machines=(Slice("cloud", 0, 0.8),))}
    old = candidate("old", plan("p", ("cloud", 0.8)))
    schedule = Greedy().schedule(Problem(tiers=(cloud(0),), candidates=(old,), running=running))
    assert schedule.waiting["old"].startswith("Its plan p lost its place. ")


def test_a_running_plan_that_is_not_offered_any_more_is_replaced() -> None:
    running = {"old": Assignment(query_id="old", plan_id="p", machines=(Slice("cloud", 0, 0.8),))}
    replanned = candidate("old", plan("r", ("cloud", 0.3)))
    assert served(Problem(tiers=(cloud(),), candidates=(replanned,), running=running)) == {
        "old": "r"
    }


def test_a_running_plan_that_now_asks_for_something_else_is_placed_anew() -> None:
    running = {"old": Assignment(query_id="old", plan_id="p", machines=(Slice("cloud", 0, 0.2),))}
    grown = candidate("old", plan("p", ("cloud", 0.9)))
    problem = Problem(tiers=(cloud(),), candidates=(grown,), running=running)
    schedule = Greedy().schedule(problem)
    assert schedule.by_query["old"].machines == (Slice("cloud", 0, 0.9),)


def test_a_query_that_left_frees_its_machines() -> None:
    running = {"gone": Assignment(query_id="gone", plan_id="p", machines=(Slice("cloud", 0, 1),))}
    new = candidate("new", plan("p", ("cloud", 1.0)))
    assert served(Problem(tiers=(cloud(),), candidates=(new,), running=running)) == {"new": "p"}


def test_twenty_slices_of_a_twentieth_fill_a_machine() -> None:
    queries = tuple(candidate(f"q{i:02}", plan("p", ("cloud", 0.05))) for i in range(21))
    schedule = Greedy().schedule(Problem(tiers=(cloud(),), candidates=queries))
    assert schedule.utilisation == {"cloud": 1.0}
    assert list(schedule.waiting) == ["q20"]


@pytest.mark.parametrize("ranking", Ranking)
@given(problem=problems(), seed=st.integers(0, 99))
def test_the_order_in_which_queries_come_does_not_matter(
    ranking: Ranking, problem: Problem, seed: int
) -> None:
    shuffled = list(problem.candidates)
    Random(seed).shuffle(shuffled)
    policy = Greedy(ranking=ranking)
    one = policy.schedule(problem)
    other = policy.schedule(replace(problem, candidates=tuple(shuffled)))
    assert one.by_query == other.by_query
    assert one.waiting == other.waiting


@settings(deadline=None)
@given(problem=problems(shares=TWENTIETHS, queries=3))
def test_greedy_never_exceeds_the_optimum_and_is_zero_only_when_nothing_fits(
    problem: Problem,
) -> None:
    best = best_goodput(problem)
    weights = {c.query_id: c.weight for c in problem.candidates}
    goodput = sum(weights[query] for query in served(problem))
    assert goodput <= best * (1 + 1e-12)
    assert (goodput > 0) == (best > 0)


@given(
    queries=st.lists(st.floats(0.1, 10.0), min_size=1, max_size=7),
    machines=st.integers(0, 3),
    share=st.sampled_from([0.3, 0.5, 1.0]),
)
@settings(deadline=None, max_examples=50)
def test_greedy_is_optimal_for_single_items_of_equal_size(
    queries: list[float], machines: int, share: float
) -> None:
    candidates = tuple(
        candidate(f"q{i}", plan("p", ("cloud", share)), weight=weight)
        for i, weight in enumerate(queries)
    )
    problem = Problem(tiers=(cloud(machines),), candidates=candidates)
    weights = {c.query_id: c.weight for c in candidates}
    goodput = sum(weights[query] for query in served(problem))
    # the heaviest queries, as many as there are places
    places = machines * int(1 / share)
    assert goodput == pytest.approx(sum(sorted(queries, reverse=True)[:places]))


@given(
    sizes=st.lists(st.integers(1, 20), min_size=1, max_size=6),
)
@settings(deadline=None, max_examples=50)
def test_with_one_machine_and_equal_weights_greedy_is_optimal(sizes: list[int]) -> None:
    candidates = tuple(
        candidate(f"q{i}", plan("p", ("cloud", size / 20))) for i, size in enumerate(sizes)
    )
    problem = Problem(tiers=(cloud(1),), candidates=candidates)
    assert len(served(problem)) == best_goodput(problem)


TIERS = (Tier(name="device", machines=1, dedicated=True), Tier(name="cloud", machines=2))


def placement_cloud(*shares: float) -> tuple[DemandItem, ...]:
    return tuple(DemandItem("cloud", share) for share in shares)


def items(*shares: float) -> tuple[tuple[int, int], ...]:
    return tuple((0, round(share * PARTS)) for share in shares)


def test_two_halves_do_not_hold_an_item_of_0_8() -> None:
    room = occupied(TIERS, Slice("cloud", 0, 0.5), Slice("cloud", 1, 0.5))
    assert fit(placement_cloud(0.8), room) == ({}, [(DemandItem("cloud", 0.8), PARTS // 2)])


def test_a_plan_that_does_not_fit_whole_takes_nothing() -> None:
    placement = Placement[str]([2], {})
    assert not placement.place("a", 0, items(0.8, 0.8, 0.8))
    assert placement.place("a", 0, items(1.0, 1.0))


def test_machines_that_cannot_all_be_occupied_take_nothing() -> None:
    placement = Placement[str]([2], {})
    assert not placement.occupy("a", Placed(0, items(0.6, 0.6), (0, 0)))
    assert not placement.occupy("a", Placed(0, items(0.6, 0.1), (0, 2)))
    assert placement.place("a", 0, items(1.0, 1.0))


def test_looking_for_room_takes_nothing() -> None:
    room = empty(TIERS)
    assert fit(placement_cloud(0.8, 0.8, 0.8), room).missing
    assert not fit(placement_cloud(1.0, 1.0), room).missing


def test_a_tier_that_is_not_there_holds_nothing() -> None:
    demand = DemandItem("moon", 0.1)
    assert fit((demand,), empty(TIERS)).missing == [(demand, 0)]


def test_an_item_goes_to_the_fullest_machine_that_holds_it() -> None:
    room = occupied(TIERS, Slice("cloud", 1, 0.6))
    assert fit(placement_cloud(0.4), room).slices == {0: Slice("cloud", 1, 0.4)}
    room["cloud"].take(1, PARTS * 4 // 10)
    assert fit(placement_cloud(0.4), room).slices == {0: Slice("cloud", 0, 0.4)}


def test_slices_are_told_by_the_order_of_the_demand() -> None:
    found = fit(placement_cloud(0.2, 0.9), empty(TIERS)).slices
    assert found == {0: Slice("cloud", 1, 0.2), 1: Slice("cloud", 0, 0.9)}


def test_every_query_finds_its_own_device_empty() -> None:
    placement = Placement[str]([2], {})
    placement.place("a", 0, items(1.0))
    room, demand = placement.room(TIERS), (DemandItem("device", 1.0),)
    assert fit(demand, room) == fit(demand, room) == ({0: Slice("device", 0, 1.0)}, [])


def test_a_tier_without_machines_holds_nothing() -> None:
    room = empty((Tier(name="cloud", machines=0),))
    assert fit(placement_cloud(0.05), room).missing == [(DemandItem("cloud", 0.05), 0)]


@given(
    machines=st.integers(1, 4),
    sizes=st.lists(st.integers(1, PARTS), max_size=20),
)
def test_the_best_machine_is_the_fullest_one_with_room(machines: int, sizes: list[int]) -> None:
    free = FreeShares(machines)
    left = [PARTS] * machines  # oracle: look at every machine
    for size in sizes:
        best = min((room, i) for i, room in enumerate([*left, PARTS + size]) if room >= size)[1]
        found = free.best(size)
        assert found == (best if best < machines else None)
        if found is not None:
            free.take(found, size)
            left[found] -= size
        assert free.largest == max(left)
        assert [free.on(i) for i in range(-1, machines + 1)] == [0, *left, 0]
