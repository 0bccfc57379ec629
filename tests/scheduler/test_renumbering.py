"""Machines of a type may come and go without any other machine becoming another one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.tiers import MachineType, Tier
from circinus.scheduler.policies.registry import Greedy
from circinus.scheduler.problem import Assignment, Problem, Slice, validate
from circinus.scheduler.rolling.live import LiveSchedule, numbering, renumbered
from circinus.scheduler.rolling.scheduler import Events, RollingSchedule, Times, Upkeep
from tests.scheduler.problems import candidate, plan


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
