from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.tiers import Tier
from circinus.scheduler.policies.improvement import Effort
from circinus.scheduler.policies.priced import Priced
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
from tests.scheduler.problems import candidate, cloud, plan

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
def test_bounds_of_the_settings(build: Callable[[], object], rule: str) -> None:
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
