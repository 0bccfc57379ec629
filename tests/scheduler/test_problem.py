from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import inf, nan

import pytest

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.plan import DemandItem
from circinus.pipelines.model.tiers import Tier
from circinus.scheduler.problem import (
    Assignment,
    Candidate,
    PlanOption,
    Problem,
    Schedule,
    Slice,
    covers,
    parts_of,
    utilisation,
    validate,
)

TIERS = (Tier(name="device", machines=1, dedicated=True), Tier(name="cloud", machines=2))
SMALL = PlanOption(plan_id="small", demand=(DemandItem("cloud", 0.4),), cost_usd_per_hour=1.0)
LARGE = PlanOption(
    plan_id="large",
    demand=(DemandItem("device", 0.8), DemandItem("cloud", 0.6), DemandItem("cloud", 0.6)),
    cost_usd_per_hour=4.0,
)
PROBLEM = Problem(
    tiers=TIERS,
    candidates=(
        Candidate(query_id="a", plans=(SMALL, LARGE)),
        Candidate(query_id="b", plans=(SMALL, LARGE)),
        Candidate(query_id="c", plans=(LARGE,)),
    ),
)
A = Assignment(query_id="a", plan_id="small", machines=(Slice("cloud", 0, 0.4),))
B = Assignment(
    query_id="b",
    plan_id="large",
    machines=(Slice("device", 0, 0.8), Slice("cloud", 0, 0.6), Slice("cloud", 1, 0.6)),
)
# device: two queries served, 0.8 of 2 machines; cloud: 0.4 + 0.6 + 0.6 of 2 machines
GOOD = Schedule(
    assignments=(A, B),
    waiting={"c": "Its only plan needs too much."},
    utilisation={"device": 0.4, "cloud": 0.8},
)


def with_assignments(*assignments: Assignment, **waiting: str) -> Schedule:
    return Schedule(
        assignments=assignments,
        waiting=waiting,
        utilisation=utilisation(PROBLEM, assignments),
    )


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda: replace(SMALL, cost_usd_per_hour=-1.0),
            r"cost_usd_per_hour must be from 0 to 1e\+12, got -1\.0",
        ),
        (lambda: replace(SMALL, cost_usd_per_hour=nan), "cost_usd_per_hour must be from"),
        (
            lambda: replace(SMALL, demand=(DemandItem("cloud", 0.0),)),
            "on cloud must be from 1e-12 to 1000000, got 0",
        ),
        (lambda: replace(SMALL, demand=(DemandItem("cloud", nan),)), "got nan"),
        (lambda: replace(SMALL, demand=(DemandItem("cloud", inf),)), "got inf"),
        (lambda: Candidate(query_id="a", plans=()), "query a.plans must have at least one plan"),
        (lambda: Candidate(query_id="a", plans=(SMALL, SMALL)), "must not repeat, got 'small'"),
        (lambda: Candidate(query_id="a", plans=(SMALL,), weight=0.0), "query a.weight must be"),
        (lambda: Candidate(query_id="a", plans=(SMALL,), weight=nan), "query a.weight must be"),
        (lambda: replace(PROBLEM, tiers=(TIERS[1], TIERS[1])), "tiers must not repeat"),
        (lambda: replace(PROBLEM, tiers=TIERS[:1]), "must be among device, got 'cloud'"),
        (
            lambda: replace(PROBLEM, candidates=PROBLEM.candidates[:1] * 2),
            "queries must not repeat, got 'a'",
        ),
    ],
)
def test_what_breaks_a_rule_cannot_be_built(build: Callable[[], object], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        build()


@pytest.mark.parametrize(
    ("schedule", "violation"),
    [
        (with_assignments(A, B), "query c is neither assigned nor waiting with a reason."),
        (with_assignments(A, B, c=""), "query c is neither assigned nor waiting with a reason."),
        (with_assignments(A, B, b="?", c="?"), "query b is assigned and waiting at once."),
        (
            with_assignments(A, A, b="?", c="?"),
            "query a must be assigned at most once, is 2 times.",
        ),
        (with_assignments(A, b="?", c="?", d="?"), "query d is not in the problem."),
        (
            with_assignments(A, B, replace(A, query_id="d"), c="?"),
            "query d is not in the problem.",
        ),
        (
            with_assignments(replace(A, query_id="c"), a="?", b="?"),
            "query c was not offered plan small.",
        ),
        (
            with_assignments(replace(A, plan_id="other"), b="?", c="?"),
            "query a was not offered plan other.",
        ),
        (
            with_assignments(replace(A, machines=()), b="?", c="?"),
            "query a must get the items of plan small, [('cloud', 0.4)], has [].",
        ),
        (
            with_assignments(replace(A, machines=(Slice("cloud", 0, 0.35),)), b="?", c="?"),
            "query a must get the items of plan small, [('cloud', 0.4)], "
            "has [('cloud', 0, 0.35)].",
        ),
        (
            with_assignments(replace(A, machines=(Slice("cloud", 2, 0.4),)), b="?", c="?"),
            "query a is on cloud machine 2: there is none.",
        ),
        (
            with_assignments(replace(A, machines=(Slice("cloud", -1, 0.4),)), b="?", c="?"),
            "query a is on cloud machine -1: there is none.",
        ),
        (
            with_assignments(replace(A, machines=(Slice("moon", 0, 0.4),)), b="?", c="?"),
            "query a is on moon machine 0: there is none.",
        ),
        (
            with_assignments(
                A,
                replace(
                    B, machines=(B.machines[0], Slice("cloud", 0, 0.6), Slice("cloud", 0, 0.6))
                ),
                c="?",
            ),
            "cloud machine 0 must hold at most 1, holds 1.6.",
        ),
        (
            replace(GOOD, utilisation={"device": 0.4, "cloud": 0.5}),
            "utilisation of cloud must be 0.8, got 0.5.",
        ),
        (
            replace(GOOD, utilisation={"cloud": 0.8}),
            "utilisation must name the tiers ['cloud', 'device'], got ['cloud'].",
        ),
    ],
)
def test_validate_names_what_is_wrong(schedule: Schedule, violation: str) -> None:
    assert violation in validate(PROBLEM, schedule)


def test_a_query_cannot_overfill_its_own_device() -> None:
    twice = PlanOption(
        plan_id="twice",
        demand=(DemandItem("device", 0.8), DemandItem("device", 0.3)),
        cost_usd_per_hour=0.0,
    )
    problem = Problem(tiers=TIERS, candidates=(Candidate(query_id="a", plans=(twice,)),))
    machines = (Slice("device", 0, 0.8), Slice("device", 0, 0.3))
    assignment = Assignment(query_id="a", plan_id="twice", machines=machines)
    schedule = Schedule(
        assignments=(assignment,), waiting={}, utilisation=utilisation(problem, (assignment,))
    )
    assert validate(problem, schedule) == (
        "device machine 0 of query a must hold at most 1, holds 1.1.",
    )


def test_a_millionth_too_much_is_too_much() -> None:
    halves = [
        PlanOption(plan_id="p", demand=(DemandItem("cloud", share),), cost_usd_per_hour=0.0)
        for share in (0.5, 0.500001)
    ]
    problem = Problem(
        tiers=TIERS,
        candidates=tuple(
            Candidate(query_id=q, plans=(p,)) for q, p in zip("ab", halves, strict=True)
        ),
    )
    assignments = tuple(
        Assignment(query_id=q, plan_id="p", machines=(Slice("cloud", 0, p.demand[0].share),))
        for q, p in zip("ab", halves, strict=True)
    )
    schedule = Schedule(
        assignments=assignments, waiting={}, utilisation=utilisation(problem, assignments)
    )
    (violation,) = validate(problem, schedule)
    assert violation.startswith("cloud machine 0 must hold at most 1, holds 1")


def test_a_good_schedule_has_no_violations() -> None:
    assert validate(PROBLEM, GOOD) == ()


def test_two_queries_may_each_use_most_of_their_own_device() -> None:
    device = PlanOption(plan_id="own", demand=(DemandItem("device", 0.8),), cost_usd_per_hour=0.0)
    problem = Problem(
        tiers=TIERS,
        candidates=tuple(Candidate(query_id=q, plans=(device,)) for q in "ab"),
    )
    slices = (Slice("device", 0, 0.8),)
    assignments = tuple(Assignment(query_id=q, plan_id="own", machines=slices) for q in "ab")
    schedule = Schedule(
        assignments=assignments, waiting={}, utilisation={"device": 0.8, "cloud": 0.0}
    )
    assert validate(problem, schedule) == ()


def test_twenty_twentieths_fill_a_machine_exactly() -> None:
    assert 20 * parts_of(0.05) == parts_of(1.0)
    assert parts_of(0.1) + parts_of(0.2) == parts_of(0.3)  # 0.1 + 0.2 > 0.3 as floats


def test_the_tiniest_share_is_still_a_part() -> None:
    assert parts_of(1e-300) == 1


def test_slices_cover_a_plan_in_any_order() -> None:
    turned = replace(B, machines=B.machines[::-1])
    assert covers(turned, LARGE)
    assert not covers(replace(B, machines=B.machines[:2]), LARGE)


def test_a_tier_without_machines_is_not_used_at_all() -> None:
    problem = Problem(tiers=(Tier(name="cloud", machines=0),), candidates=())
    assert utilisation(problem, ()) == {"cloud": 0.0}


def test_a_schedule_is_what_runs_next_time() -> None:
    assert GOOD.by_query == {"a": A, "b": B}
