from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.tiers import Tier
from circinus.scheduler.compiled.placement import fit
from circinus.scheduler.policies.priced import Priced
from circinus.scheduler.problem import Problem, validate
from circinus.scheduler.rolling.live import LiveSchedule
from circinus.studies.scheduling.problems import Recipe, problem_of
from tests.scheduler.problems import candidate, cloud, occupied, plan

TIERS = (
    Tier(name="device", dedicated=True),
    Tier(name="edge", machines=2),
    Tier(name="cloud", machines=2),
)


def started(problem: Problem) -> LiveSchedule:
    return LiveSchedule(problem, Priced().schedule(problem))


def holds(live: LiveSchedule) -> None:
    """The schedule is valid, everybody is in it, and nobody waits who would fit."""
    problem, schedule = live.problem(), live.schedule()
    assert validate(problem, schedule) == ()
    assert set(schedule.waiting) == set(live.waiting)
    if problem.quotas:
        return
    room = occupied(problem.tiers, *(s for a in schedule.assignments for s in a.machines))
    for c in problem.candidates:
        if c.query_id in schedule.waiting:
            assert all(fit(p.demand, room).missing for p in c.plans)


def test_only_live_queries_leave() -> None:
    live = started(Problem(tiers=(cloud(),), candidates=()))
    with pytest.raises(InvalidInput, match="query_id must be a live query, got 'x'"):
        live.leave("x")


def test_only_shared_tiers_are_resized() -> None:
    live = started(Problem(tiers=TIERS, candidates=()))
    with pytest.raises(InvalidInput, match="tier must be among edge, cloud, got 'device'"):
        live.resize("device", 2)
    with pytest.raises(InvalidInput, match=r"tier edge\.machines must be >= 0, got -1"):
        live.resize("edge", -1)


def test_an_arrival_that_does_not_fit_waits_and_moves_nobody() -> None:
    live = started(
        Problem(tiers=(cloud(),), candidates=(candidate("a", plan("p", ("cloud", 0.6))),))
    )
    before = live.served
    live.arrive(candidate("b", plan("p", ("cloud", 0.5)), weight=99.0))
    assert live.served == before
    assert live.waiting == ("b",)
    holds(live)


def test_who_waits_comes_in_when_somebody_leaves_the_best_first() -> None:
    queries = (
        candidate("a", plan("p", ("cloud", 1.0)), weight=50.0),
        candidate("b", plan("p", ("cloud", 0.6)), weight=1.0),
        candidate("c", plan("p", ("cloud", 0.6)), weight=2.0),
    )
    live = started(Problem(tiers=(cloud(),), candidates=queries))
    live.leave("a")
    assert list(live.served) == ["c"]
    assert live.waiting == ("b",)
    holds(live)


def test_with_machines_taken_away_the_evicted_are_queued() -> None:
    queries = tuple(candidate(f"q{i}", plan("p", ("cloud", 0.6)), weight=i + 1) for i in range(3))
    live = started(Problem(tiers=(cloud(3),), candidates=queries))
    before = live.served
    live.resize("cloud", 1)
    holds(live)
    assert len(live.served) == 1
    assert set(live.waiting) == set(before) - set(live.served)
    live.resize("cloud", 3)
    assert set(live.served) == set(before)
    assert live.waiting == ()


def test_a_changed_query_stays_while_its_plan_is_offered() -> None:
    live = started(
        Problem(tiers=(cloud(2),), candidates=(candidate("a", plan("p", ("cloud", 0.6))),))
    )
    at = live.served["a"]
    again = candidate("a", plan("p", ("cloud", 0.6)), plan("r", ("cloud", 0.1)), weight=3.0)
    live.arrive(again)
    assert live.served["a"] is at
    live.arrive(candidate("a", plan("r", ("cloud", 0.1))))
    assert live.served["a"].plan_id == "r"
    live.arrive(candidate("a", plan("s", ("cloud", 7.0))))
    assert live.waiting == ("a",)
    holds(live)


@given(data=st.data())
@settings(deadline=None, max_examples=40)
def test_any_course_of_events_keeps_the_schedule_valid_and_loses_nobody(
    data: st.DataObject,
) -> None:
    pool = problem_of(Recipe(queries=14, plans=3, tiers=TIERS, alone=0.05), 5).candidates
    pool = tuple(replace(c, tenant="ab"[i % 2]) for i, c in enumerate(pool))
    quotas = data.draw(st.sampled_from([{}, {"a": 0.5}]))
    live = started(Problem(tiers=TIERS, candidates=pool[:5], quotas=quotas))
    there = {c.query_id for c in pool[:5]}
    for _ in range(data.draw(st.integers(1, 12))):
        kind = data.draw(st.sampled_from(["arrive", "leave", "resize"]))
        if kind == "arrive":
            comer = data.draw(st.sampled_from(pool))
            live.arrive(comer)
            there.add(comer.query_id)
        elif kind == "leave" and there:
            goes = data.draw(st.sampled_from(sorted(there)))
            live.leave(goes)
            there.remove(goes)
        else:
            tier = data.draw(st.sampled_from(["edge", "cloud"]))
            live.resize(tier, data.draw(st.integers(0, 3)))
        assert {c.query_id for c in live.problem().candidates} == there
        holds(live)
