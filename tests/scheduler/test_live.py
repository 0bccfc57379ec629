from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.errors import InvalidInput
from pipelines.infrastructure import Tier
from scheduler.generator import Recipe, problem_of
from scheduler.live import Change, LiveSchedule
from scheduler.packing import Packing
from scheduler.priced import Priced
from scheduler.problem import Problem, validate
from tests.scheduler.problems import candidate, cloud, plan

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
    packing = Packing(problem.tiers)
    for assignment in schedule.assignments:
        assert packing.occupy(assignment.machines)
    for c in problem.candidates:
        if c.query_id in schedule.waiting:
            assert all(packing.missing(p.demand) for p in c.plans)


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
    assert live.arrive(candidate("b", plan("p", ("cloud", 0.5)), weight=99.0)) == Change()
    assert live.waiting == ("b",)
    holds(live)


def test_who_waits_comes_in_when_somebody_leaves_the_best_first() -> None:
    queries = (
        candidate("a", plan("p", ("cloud", 1.0)), weight=50.0),
        candidate("b", plan("p", ("cloud", 0.6)), weight=1.0),
        candidate("c", plan("p", ("cloud", 0.6)), weight=2.0),
    )
    live = started(Problem(tiers=(cloud(),), candidates=queries))
    change = live.leave("a")
    assert [a.query_id for a in change.admitted] == ["c"]
    assert live.waiting == ("b",)
    holds(live)


def test_with_machines_taken_away_the_evicted_are_named_and_queued() -> None:
    queries = tuple(candidate(f"q{i}", plan("p", ("cloud", 0.6)), weight=i + 1) for i in range(3))
    live = started(Problem(tiers=(cloud(3),), candidates=queries))
    before = live.served
    change = live.resize("cloud", 1)
    holds(live)
    assert len(live.served) == 1
    assert set(change.evicted) == set(live.waiting) == set(before) - set(live.served)
    back = live.resize("cloud", 3)
    assert {a.query_id for a in back.admitted} == set(change.evicted)
    assert live.waiting == ()


def test_a_changed_query_stays_while_its_plan_is_offered() -> None:
    live = started(
        Problem(tiers=(cloud(2),), candidates=(candidate("a", plan("p", ("cloud", 0.6))),))
    )
    at = live.served["a"]
    again = candidate("a", plan("p", ("cloud", 0.6)), plan("r", ("cloud", 0.1)), weight=3.0)
    assert live.arrive(again) == Change()
    assert live.served["a"] is at
    (moved,) = live.arrive(candidate("a", plan("r", ("cloud", 0.1)))).admitted
    assert moved.plan_id == "r"
    gone = live.arrive(candidate("a", plan("s", ("cloud", 7.0))))
    assert gone.evicted == ("a",)
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
        served = set(live.served)
        if kind == "arrive":
            comer = data.draw(st.sampled_from(pool))
            change = live.arrive(comer)
            there.add(comer.query_id)
        elif kind == "leave" and there:
            goes = data.draw(st.sampled_from(sorted(there)))
            change = live.leave(goes)
            there.remove(goes)
            served.discard(goes)
        else:
            tier = data.draw(st.sampled_from(["edge", "cloud"]))
            change = live.resize(tier, data.draw(st.integers(0, 3)))
        assert {c.query_id for c in live.problem().candidates} == there
        assert set(change.evicted) == served - set(live.served)
        assert set(live.served) - served <= {a.query_id for a in change.admitted}
        holds(live)
