from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from math import inf, nan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.plan import DemandItem
from circinus.pipelines.model.tiers import Tier
from circinus.scheduler.pool.worthwhile import dearness, least_cost, worthwhile
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
from circinus.scheduler.problem_form import problem_from_dict, problem_to_dict
from circinus.studies.scheduling.problems import Recipe, problem_of

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


TIER = {"name": "cloud", "machines": 2}
PLAN = {"id": "p", "demand": [{"tier": "cloud", "share": 0.5}]}


def query(**change: object) -> dict[str, object]:
    return {"id": "q", "plans": [PLAN], **change}


@pytest.mark.parametrize(
    ("document", "rule"),
    [
        ([], "problem must be an object"),
        ({"queries": []}, "problem.tiers must be given"),
        ({"tiers": [TIER]}, "problem.queries must be given"),
        ({"tiers": [TIER], "queries": [], "x": 1}, "a field of problem must be among .* got 'x'"),
        ({"tiers": [{"name": "c"}], "queries": []}, r"tiers\[0\].machines must be given"),
        (
            {"tiers": [TIER | {"machines": 1.5}], "queries": []},
            r"tiers\[0\].machines must be of type int, got 1.5",
        ),
        (
            {"tiers": [TIER | {"machines": True}], "queries": []},
            r"tiers\[0\].machines must be of type int, got True",
        ),
        (
            {"tiers": [TIER], "queries": [query(weight="2")]},
            r"queries\[0\].weight must be a number, got '2'",
        ),
        (
            {
                "tiers": [TIER],
                "queries": [
                    query(plans=[{"id": "p", "demand": [{"tier": "cloud", "share": 1.5}]}])
                ],
            },
            r"queries\[0\].plans\[0\].demand\[0\].share must be in \(0, 1\], got 1.5",
        ),
        (
            {
                "tiers": [TIER],
                "queries": [query(plans=[{"id": "p", "demand": [{"tier": "moon", "share": 1}]}])],
            },
            "plan p.demand must be among cloud, got 'moon'",
        ),
        (
            {"tiers": [TIER], "queries": [], "quotas": {"a": 2}},
            r"quota of a must be in \[0, 1\], got 2",
        ),
    ],
)
def test_what_is_wrong_is_named(document: object, rule: str) -> None:
    with pytest.raises(InvalidInput, match=rule):
        problem_from_dict(document)


def test_what_is_written_is_read_back() -> None:
    tiers = (Tier(name="own", dedicated=True), Tier(name="cloud", machines=3))
    drawn = problem_of(Recipe(queries=5, plans=3, tiers=tiers), 1)
    problem = Problem(tiers=drawn.tiers, candidates=drawn.candidates, quotas={"a": 0.5})
    text = json.dumps(problem_to_dict(problem))
    assert problem_from_dict(json.loads(text)) == problem


def test_what_may_be_left_out_has_defaults() -> None:
    problem = problem_from_dict({"tiers": [TIER], "queries": [query()]})
    (candidate,) = problem.candidates
    assert (candidate.weight, candidate.priority, candidate.tenant) == (1.0, 0, "")
    assert not problem.tiers[0].dedicated


def test_what_is_late_everywhere_has_no_cost() -> None:
    share, latency = np.array([0.9, 0.1]), np.array([[1.0], [9.0]])
    assert least_cost(share, latency, np.array([2.0]), 5.0, in_time=1.0) == inf
    # the others may be late: 0.9 requests of 1 s at 2 an hour
    assert least_cost(share, latency, np.array([2.0]), 5.0, in_time=0.9) == pytest.approx(1.8)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), in_time=st.sampled_from([1.0, 0.9]))
def test_the_least_cost_is_that_of_instances_in_parts(seed: int, in_time: float) -> None:
    rng = np.random.default_rng(seed)
    share, prices = rng.dirichlet(np.ones(4)), rng.uniform(0, 2, 3)
    latency = rng.uniform(0.1, 1.5, (4, 3))
    latency[:, 0] = np.minimum(latency[:, 0], 1.0)
    cost = np.where(latency <= 1.0, latency * prices, 1e6).ravel()
    each = np.kron(np.eye(4), np.ones(3))  # a size is served as often as it comes, at most
    left, right = np.vstack([each, -np.ones(12)]), np.append(share, -in_time)
    solved = linprog(cost, A_ub=left, b_ub=right, method="highs")
    found = least_cost(share, latency, prices, 1.0, in_time=in_time)
    assert found == pytest.approx(solved.fun, rel=1e-6, abs=1e-9)


def test_a_type_is_as_dear_as_for_the_size_that_suits_it_best() -> None:
    # costs 1, 2, 4 and 3, 3, late: the second is as cheap for the large size, the third never
    latency = np.array([[1.0, 2.0, 4.0], [3.0, 3.0, 9.0]])
    dear = dearness(np.array([0.5, 0.5]), latency, np.ones(3), 5.0)
    assert dear.tolist() == [1.0, 1.0, 4.0]


def test_sizes_that_do_not_occur_and_types_in_time_with_none_do_not_count() -> None:
    latency = np.array([[1.0, 9.0], [3.0, 0.1]])
    assert dearness(np.array([1.0, 0.0]), latency, np.ones(2), 5.0).tolist() == [1.0, inf]


def test_beside_a_free_type_the_others_are_not_worth_it() -> None:
    dear = dearness(np.array([1.0]), np.array([[1.0, 2.0]]), np.array([1.0, 0.0]), 5.0)
    assert dear.tolist() == [inf, 1.0]


@pytest.mark.parametrize(
    ("dear", "choices", "keep", "places"),
    [
        ([1.0, 2.0, 1.5], [10, 10, 10], None, [0, 2]),  # 1000 would be more than 100
        ([1.0, 2.0, 1.5], [10, 10, 10], 1, [0, 1]),
        ([1.0, inf, 1.5], [2, 2, 2], None, [0, 2]),
        ([1.0, 1.0, 1.5], [2, 1, 2], None, [0, 2]),  # one cannot be paid
        ([inf, inf], [2, 2], None, [0]),
        ([1.0, 1.0], [1000, 2], None, [0]),  # one is always there
    ],
)
def test_the_least_dear_types_are_looked_at(
    dear: list[float], choices: list[int], keep: int | None, places: list[int]
) -> None:
    assert worthwhile(np.array(dear), np.array(choices), 100, keep) == places
