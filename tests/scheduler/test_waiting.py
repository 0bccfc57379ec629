from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.tiers import MachineType, Tier
from circinus.scheduler.compiled.waiting import shortages, why_waiting
from circinus.scheduler.policies.registry import Greedy
from circinus.scheduler.pool.kairos_bound import OneShotRule, kairos_bounds, one_shot
from circinus.scheduler.pool.throughput_bounds import throughput_bounds
from circinus.scheduler.problem import Assignment, Candidate, Problem, Schedule, Slice, validate
from circinus.scheduler.rolling.live import LiveSchedule, numbering, renumbered
from circinus.scheduler.rolling.scheduler import Events, RollingSchedule, Times, Upkeep
from circinus.scheduler.simulation.loads import kairos_batches
from tests.scheduler.kairos_data import (
    BUDGET,
    QOS_S,
    latencies,
    published_figures,
    space,
)
from tests.scheduler.problems import candidate, cloud, occupied, plan, problems

TIERS = (Tier(name="device", machines=1, dedicated=True), Tier(name="edge", machines=0), cloud(2))


def why(*plans: tuple[str, tuple[tuple[str, float], ...]], used: float = 0.0) -> str:
    others = [Slice("cloud", machine, used) for machine in range(2)] if used else []
    query = candidate("a", *(plan(name, *items) for name, items in plans))
    return why_waiting(query, occupied(TIERS, *others), TIERS)


def test_it_says_which_tier_lacks_how_much_for_the_least_demanding_plan() -> None:
    assert why(("big", (("cloud", 0.9),)), ("small", (("cloud", 0.4),)), used=0.75) == (
        "Its least demanding plan small needs 0.4 of one machine of cloud, but the most free on "
        "one there is 0.25: 0.15 is missing. What would let it in: 0.15 coming free on the "
        "emptiest machine of cloud (or 1 more machine of cloud)."
    )


def test_replicas_that_find_no_room_ask_for_machines() -> None:
    # three of 0.6, each needs a machine; two are there
    assert why(("p", (("cloud", 0.6),) * 5)) == (
        "Its only plan p needs 3 times 0.6 of one machine of cloud, but the most free on one "
        "there is 0.4: 0.2 is missing. What would let it in: 3 more machines of cloud."
    )


def test_small_replicas_share_the_machines_asked_for() -> None:
    text = why(("p", (("cloud", 0.3),) * 10), used=0.8)
    assert "needs 10 times 0.3" in text
    assert text.endswith("What would let it in: 4 more machines of cloud.")


def test_a_tier_without_machines_is_named() -> None:
    assert why(("p", (("edge", 0.05),))) == (
        "Its only plan p needs 0.05 of one machine of edge, which has no machines. "
        "What would let it in: 1 more machine of edge."
    )


def test_two_tiers_that_lack_are_both_named() -> None:
    text = why(("p", (("edge", 0.5), ("cloud", 0.5))), used=0.6)
    assert "of one machine of edge" in text
    assert "0.1 coming free on the emptiest machine of cloud" in text


def test_an_item_larger_than_a_machine_gets_no_promise_of_more_machines() -> None:
    assert why(("p", (("cloud", 1.5),))).endswith(
        "What would let it in: a plan that fits one machine of cloud."
    )


def test_a_device_that_is_too_small_gets_no_promise_of_more_machines() -> None:
    text = why(("p", (("device", 0.7), ("device", 0.7))))
    assert "the most free on one of the query's own is 0.3: 0.4 is missing" in text
    assert text.endswith("What would let it in: a plan that fits one machine of device.")


def test_a_plan_that_could_fit_is_told_before_one_that_never_will() -> None:
    text = why(("never", (("device", 2.0),)), ("could", (("cloud", 0.5),)), used=0.6)
    assert "plan could needs" in text


def machines_asked_for(problem: Problem, waiting: Candidate, schedule: Schedule) -> Counter[str]:
    """Tier -> machines that the shortage of the query's first plan asks for; empty: hopeless."""
    room = occupied(problem.tiers, *(s for a in schedule.assignments for s in a.machines))
    lacks = shortages(waiting.plans[0], room, {tier.name: tier for tier in problem.tiers})
    assert lacks, "a waiting query lacks something"
    asked = {lack.tier.name: lack.machines for lack in lacks}
    if any(machines is None for machines in asked.values()):
        return Counter()
    return Counter({tier: machines or 0 for tier, machines in asked.items()})


@settings(deadline=None)
@given(problem=problems())
def test_the_machines_asked_for_do_let_the_query_in(problem: Problem) -> None:
    schedule = Greedy().schedule(problem)
    for waiting in problem.candidates:
        if waiting.query_id not in schedule.waiting:
            continue
        asked = machines_asked_for(problem, waiting, schedule)
        if not asked:
            continue
        larger = replace(
            problem,
            tiers=tuple(replace(t, machines=t.machines + asked[t.name]) for t in problem.tiers),
            candidates=tuple(
                c for c in problem.candidates if c == waiting or c.query_id in schedule.by_query
            ),
            running=schedule.by_query,
        )
        assert waiting.query_id in Greedy().schedule(larger).by_query


def test_where_machines_and_quota_are_in_the_way_both_are_told() -> None:
    queries = (
        candidate("a", plan("p", ("cloud", 1.0))),
        candidate("b", plan("p", ("cloud", 0.8))),
    )
    problem = Problem(
        tiers=(cloud(1),),
        candidates=tuple(replace(q, tenant=t) for q, t in zip(queries, ("", "acme"), strict=True)),
        running=Greedy().schedule(Problem(tiers=(cloud(1),), candidates=queries[:1])).by_query,
        quotas={"acme": 0.5},
    )
    assert Greedy().schedule(problem).waiting["b"] == (
        "Its only plan p needs 0.8 of one machine of cloud, but the most free on one there is 0: "
        "0.8 is missing. What would let it in: 0.8 coming free on the emptiest machine of cloud "
        "(or 1 more machine of cloud). Besides: Its plan p needs 0.8 machines of cloud, but "
        "tenant acme may hold 0.5 and would hold 0.3 more. What would let it in: more machines of "
        "cloud, or a larger quota."
    )


def farm(**machines: int) -> Tier:
    """A tier with types of equal price, in this order."""
    types = tuple(MachineType(name=name, machines=n) for name, n in machines.items())
    return Tier(name="farm", types=types)


def at(*machines: int, tier: str = "farm") -> Assignment:
    slices = tuple(Slice(tier, machine, 0.5) for machine in machines)
    return Assignment(query_id="q", plan_id="p", machines=slices)


def moved(running: Assignment, before: Tier, after: Tier) -> list[int]:
    found = renumbered({"q": running}, numbering([before]), numbering([after]))
    return [each.machine for each in found["q"].machines]


def test_a_machine_that_is_gone_gets_the_number_of_none() -> None:
    assert moved(at(1, 2), farm(a=2, b=1), farm(a=1, b=1)) == [3, 1]  # of 0 and 1 there are


def test_a_tier_that_has_types_only_now_has_none_of_the_machines_of_before() -> None:
    assert moved(at(0), Tier(name="farm", machines=2), farm(a=2)) == [2]


def test_machines_behind_a_type_that_grows_keep_their_queries() -> None:
    assert moved(at(0, 2, 3), farm(a=2, b=2), farm(a=5, b=2)) == [0, 5, 6]


def test_machines_of_a_tier_without_types_keep_their_numbers() -> None:
    before, after = Tier(name="farm", machines=2), Tier(name="farm", machines=9)
    assert moved(at(0, 1), before, after) == [0, 1]


COUNTS = st.dictionaries(st.sampled_from("abc"), st.integers(0, 4), min_size=1)


@given(COUNTS, COUNTS)
def test_a_renumbered_machine_is_of_the_type_that_it_was_or_gone_and_none_is_two(
    before: dict[str, int], after: dict[str, int]
) -> None:
    old, new = farm(**before), farm(**after)
    numbers = moved(at(*range(old.machines)), old, new)
    assert len(set(numbers)) == old.machines
    for was, now in enumerate(numbers):
        kind = old.type_of(was)
        assert kind is not None
        found = new.type_of(now)
        assert found is None or found.name == kind.name
    stay = sum(found is not None for found in map(new.type_of, numbers))
    assert stay == sum(min(count, after.get(name, 0)) for name, count in before.items())


def two_on_unlike_machines() -> Problem:
    """Two queries that fill a machine of each of two types."""
    queries = tuple(candidate(name, plan("p", ("farm", 1.0))) for name in ("x", "y"))
    return Problem(tiers=(farm(a=1, b=1),), candidates=queries)


def test_only_a_type_of_a_tier_with_types_is_resized() -> None:
    problem = two_on_unlike_machines()
    live = LiveSchedule(problem, Greedy().schedule(problem))
    with pytest.raises(InvalidInput, match="tier must be among farm/a, farm/b, got 'farm'"):
        live.resize("farm", 2)
    with pytest.raises(InvalidInput, match=r"tier farm\.machines must be >= 0, got -1"):
        live.resize("farm/a", -1)


def test_a_type_that_grows_moves_and_displaces_nobody() -> None:
    problem = two_on_unlike_machines()
    upkeep = Upkeep(policy=Greedy())
    rolling = RollingSchedule(problem, Times(), upkeep, 0.0)
    assert [a.machines[0].machine for a in rolling.last.schedule.assignments] == [0, 1]
    step = rolling.change(Events(machines={"farm/a": 4}), 1.0)
    # machine 1 was the one of b, which is number 4 now
    assert [a.machines[0].machine for a in step.schedule.assignments] == [0, 4]
    assert step.displaced == ()
    assert validate(rolling.problem(), step.schedule) == ()


def test_a_type_that_goes_takes_its_query_along_and_no_other() -> None:
    rolling = RollingSchedule(two_on_unlike_machines(), Times(), Upkeep(policy=Greedy()), 0.0)
    step = rolling.change(Events(machines={"farm/a": 0}), 1.0)
    assert {a.query_id: a.machines for a in step.schedule.assignments} == {
        "y": (Slice("farm", 0, 1.0),)
    }
    assert [(found.query_id, found.by, found.moved) for found in step.displaced] == [
        ("x", (), False)
    ]


@given(st.lists(st.tuples(st.sampled_from(["farm/a", "farm/b"]), st.integers(0, 3)), max_size=6))
def test_whatever_comes_and_goes_who_has_a_machine_still_is_on_it(
    changes: list[tuple[str, int]],
) -> None:
    queries = tuple(candidate(f"q{i}", plan("p", ("farm", 0.5))) for i in range(5))
    problem = Problem(tiers=(farm(a=2, b=1),), candidates=queries)
    live = LiveSchedule(problem, Greedy().schedule(problem))
    for pool, machines in changes:
        (tier,) = live.problem().tiers
        before = {q: tier.type_of(a.machines[0].machine) for q, a in live.served.items()}
        live.resize(pool, machines)
        (tier,) = live.problem().tiers
        assert validate(live.problem(), live.schedule()) == ()
        for query, kind in before.items():
            untouched = kind is not None and f"farm/{kind.name}" != pool
            if untouched and query in live.served:
                now = tier.type_of(live.served[query].machines[0].machine)
                assert now is not None
                assert kind is not None
                assert now.name == kind.name


def test_numbering_tells_tiers_with_types_alone() -> None:
    tiers = (farm(a=2, b=1), Tier(name="alike"))
    assert numbering(tiers) == {"farm": (("a", 2), ("b", 1))}
    assert renumbered({"q": at(1)}, numbering(tiers), numbering(tiers)) == {"q": at(1)}


def test_no_pool_is_no_choice() -> None:
    with pytest.raises(InvalidInput, match="pools must not be empty"):
        one_shot(np.empty((0, 2), np.int64), np.empty(0))


def test_of_one_pool_it_is_that_one() -> None:
    assert one_shot(np.array([[0, 3]]), np.array([1.0])).pool == (0, 3)


def test_three_that_agree_on_the_base_give_the_highest() -> None:
    pools = np.array([[2, 0], [1, 1], [1, 2], [1, 3]])
    assert one_shot(pools, np.array([1.0, 3.0, 5.0, 4.0])) == ((1, 2), OneShotRule.HIGHEST)


def test_three_that_differ_give_the_one_nearest_to_the_others() -> None:
    # squared distances to the others: (2, 0): 1 + 10 = 11, (1, 0): 1 + 5 = 6, (1, 3)... by hand:
    # (2,0)-(1,0) 1, (2,0)-(1,3) 10, (1,0)-(1,3) 9: sums 11, 10, 19
    pools = np.array([[2, 0], [1, 0], [1, 3]])
    assert one_shot(pools, np.array([3.0, 2.0, 1.0])) == ((1, 0), OneShotRule.NEAREST)


def test_only_ten_have_a_say() -> None:
    pools = np.array([[i % 2, i] for i in range(10)] + [[0, 10**6]])
    chosen = one_shot(pools, -np.arange(11.0))
    # of 0 to 9 those in the middle are nearest; (0, 4) has alike base counts near it as (1, 5)
    assert chosen == ((0, 4), OneShotRule.NEAREST)


@pytest.mark.parametrize(
    ("model", "pool", "rule"),
    [
        ("rm2", (1, 0, 13, 0), OneShotRule.HIGHEST),
        ("wnd", (1, 0, 13, 0), OneShotRule.HIGHEST),
        ("mtwnd", (2, 0, 8, 1), OneShotRule.NEAREST),
    ],
)
def test_kairos_chooses_what_its_authors_figures_say(
    model: str, pool: tuple[int, ...], rule: OneShotRule
) -> None:
    pools = space().pools[space().within(BUDGET)]
    assert one_shot(pools, kairos_bounds(published_figures(model), pools)) == (pool, rule)


@pytest.mark.parametrize(
    ("model", "pool"),
    [("rm2", (1, 0, 13, 0)), ("wnd", (1, 0, 13, 0)), ("mtwnd", (2, 0, 9, 0))],
)
def test_the_highest_bound_of_the_linear_program_needs_no_rule(
    model: str, pool: tuple[int, ...]
) -> None:
    # the pools with the highest rate, too, see tests of `pool_search`: the rules would lose it
    table, pools = latencies(model), space().pools[space().within(BUDGET)]
    rows = table.rows(kairos_batches(20_000, np.random.default_rng(1)))
    share = np.bincount(rows, minlength=len(table.batches)) / len(rows)
    bounds = throughput_bounds(share, table.mean_s, pools, QOS_S[model], in_time=0.99)
    assert tuple(pools[bounds.argmax()].tolist()) == pool
