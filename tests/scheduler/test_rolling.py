from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circinus.pipelines.clock import ManualClock
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.tiers import Tier
from circinus.scheduler.policies.improvement import Effort
from circinus.scheduler.policies.priced import Priced
from circinus.scheduler.policies.registry import Greedy
from circinus.scheduler.problem import (
    Assignment,
    Candidate,
    Problem,
    Schedule,
    SchedulingPolicy,
    Slice,
    validate,
)
from circinus.scheduler.rolling.ageing import Ageing
from circinus.scheduler.rolling.scheduler import (
    Events,
    RollingSchedule,
    Times,
    Upkeep,
    WrongSchedule,
    scheduled,
)
from circinus.studies.scheduling.problems import Recipe, problem_of
from tests.scheduler.problems import candidate, cloud, plan

AGEING = Ageing(growth_s=30.0, limit_s=60.0, turn_s=20.0)
TIERS = (
    Tier(name="device", dedicated=True),
    Tier(name="edge", machines=2),
    Tier(name="cloud", machines=2),
)
NOBODY = Problem(tiers=(cloud(),), candidates=())


@dataclass
class Counting:
    """A policy that counts how often it is asked."""

    policy: SchedulingPolicy = field(default_factory=Greedy)
    asked: int = 0
    small_steps: ClassVar[bool] = True

    def schedule(self, problem: Problem) -> Schedule:
        self.asked += 1
        return self.policy.schedule(problem)


class Wrong:
    """A policy that serves nobody and gives no reasons."""

    small_steps: ClassVar[bool] = True

    def schedule(self, problem: Problem) -> Schedule:
        return Schedule(assignments=(), waiting={}, utilisation={})


def rolling(
    problem: Problem, policy: SchedulingPolicy | None = None, times: Times | None = None
) -> RollingSchedule:
    upkeep = Upkeep(policy=policy or Greedy(), ageing=AGEING, every_s=5.0)
    return RollingSchedule(problem, times or Times(), upkeep, 0.0)


def whole(name: str, weight: float = 1.0, priority: int = 0) -> Candidate:
    """A query that needs all of a machine."""
    made = candidate(name, plan("p", ("cloud", 1.0)), weight=weight)
    return replace(made, priority=priority)


def small(name: str) -> Candidate:
    return candidate(name, plan("p", ("cloud", 0.05)))


def test_the_interval_is_positive() -> None:
    with pytest.raises(InvalidInput, match="every_s must be finite and > 0, got 0"):
        Upkeep(policy=Greedy(), every_s=0)


def test_a_policy_that_breaks_rules_is_not_believed() -> None:
    with pytest.raises(WrongSchedule, match="query a is neither assigned nor waiting"):
        rolling(replace(NOBODY, candidates=(small("a"),)), Wrong())


def test_only_live_queries_leave() -> None:
    with pytest.raises(InvalidInput, match="query_id must be a live query, got 'x'"):
        rolling(NOBODY).change(Events(leaving=("x",)), 1.0)


def test_what_ran_on_machines_that_are_gone_is_named_at_the_start() -> None:
    before = Assignment(query_id="a", plan_id="p", machines=(Slice("cloud", 3, 1.0),))
    problem = Problem(tiers=(cloud(0),), candidates=(whole("a"),), running={"a": before})
    step = rolling(problem).last
    assert [d.words for d in step.displaced] == [
        "a was stopped because its machines or plan are gone."
    ]
    assert "which has no machines" in step.schedule.waiting["a"]


def test_a_small_change_among_many_is_a_small_step_and_the_tenth_is_a_whole_one() -> None:
    policy = Counting()
    many = tuple(small(f"q{i:02}") for i in range(30))
    live = rolling(Problem(tiers=(cloud(3),), candidates=many), policy)
    for i in range(3):
        step = live.change(Events(arriving=(small(f"new{i}"),)), float(i))
        assert not step.whole
        assert f"new{i}" in step.schedule.by_query
    assert policy.asked == 1
    assert live.change(Events(leaving=("q00",)), 9.0).whole  # 4 of 32
    assert policy.asked == 2


def test_with_machines_taken_away_the_evicted_are_named_and_come_back_with_them() -> None:
    queries = tuple(whole(f"q{i}", weight=i + 1.0) for i in range(3))
    live = rolling(Problem(tiers=(cloud(3),), candidates=queries))
    gone = live.change(Events(machines={"cloud": 1}), 10.0)
    assert len(gone.schedule.by_query) == 1
    assert {d.query_id for d in gone.displaced} == set(gone.schedule.waiting)
    assert all(not d.moved for d in gone.displaced)
    assert {live.times.since[q] for q in gone.schedule.waiting} == {10.0}
    back = live.change(Events(machines={"cloud": 3}), 20.0)
    assert set(back.schedule.by_query) == {"q0", "q1", "q2"}
    assert back.displaced == ()


def test_a_higher_priority_takes_the_place_at_once_and_it_is_told_for_whom() -> None:
    live = rolling(replace(NOBODY, candidates=(whole("low", weight=99.0),)))
    step = live.change(Events(arriving=(whole("high", priority=1),)), 1.0)
    assert set(step.schedule.by_query) == {"high"}
    assert [(d.query_id, d.by, d.moved) for d in step.displaced] == [("low", ("high",), False)]
    assert not live.due(2.0)


def test_just_before_the_limit_nothing_is_due_and_at_it_the_overdue_takes_its_place() -> None:
    live = rolling(replace(NOBODY, candidates=(whole("a", weight=9.0), whole("b"))))
    assert set(live.last.schedule.by_query) == {"a"}
    assert not live.due(59.9)
    assert live.due(60.0)
    step = live.change(Events(), 60.0)
    assert set(step.schedule.by_query) == {"b"}
    assert live.times.overdue == {"b"}
    assert [d.words for d in step.displaced] == ["a was stopped for b."]
    assert live.times.since == {"a": 60.0, "b": 60.0}


def test_a_claim_that_cannot_be_met_is_tried_again_after_the_interval_only() -> None:
    times = Times(since={"a": 0.0, "b": 0.0}, overdue=frozenset({"a"}))
    running = {"a": Assignment(query_id="a", plan_id="p", machines=(Slice("cloud", 0, 1.0),))}
    problem = Problem(tiers=(cloud(),), candidates=(whole("a"), whole("b")), running=running)
    upkeep = Upkeep(policy=Greedy(), ageing=replace(AGEING, limit_s=1.0), every_s=5.0)
    live = RollingSchedule(problem, times, upkeep, 10.0)
    assert set(live.last.schedule.by_query) == {"a"}  # its turn lasts until 20
    assert not live.due(14.9)
    assert live.due(15.0)
    live.change(Events(), 15.0)
    assert not live.due(19.9)
    assert set(live.change(Events(), 20.0).schedule.by_query) == {"b"}


def test_room_that_comes_free_goes_to_whom_waiting_has_made_heavy() -> None:
    many = tuple(small(f"q{i:02}") for i in range(20))  # they fill the second machine
    queries = (whole("a"), whole("old"), whole("new", weight=1.5), *many)
    running = {"a": Assignment(query_id="a", plan_id="p", machines=(Slice("cloud", 0, 1.0),))}
    problem = Problem(tiers=(cloud(2),), candidates=queries, running=running)
    live = rolling(problem, Priced(), Times(since={"old": -40.0}))
    assert set(live.last.schedule.waiting) == {"old", "new"}
    step = live.change(Events(leaving=("a",)), 1.0)
    assert not step.whole
    assert set(step.schedule.waiting) == {"new"}  # 1 + 41 / 30 is more than 1.5


def test_the_same_events_give_the_same_schedules() -> None:
    pool = problem_of(Recipe(queries=12, plans=3, tiers=TIERS), 3).candidates

    def play() -> list[Schedule]:
        live = rolling(Problem(tiers=TIERS, candidates=pool[:6]), Priced(clock=ManualClock()))
        told = [live.last.schedule]
        for i, comer in enumerate(pool[6:]):
            events = Events(arriving=(comer,), leaving=(pool[i].query_id,))
            told.append(live.change(events, 10.0 * i).schedule)
        return told

    assert play() == play()


@given(data=st.data())
@settings(deadline=None, max_examples=20)
def test_any_course_of_events_is_valid_and_loses_nobody(data: st.DataObject) -> None:
    pool = problem_of(Recipe(queries=14, plans=3, tiers=TIERS, alone=0.05), 5).candidates
    pool = tuple(replace(c, tenant="ab"[i % 2], priority=i % 3 // 2) for i, c in enumerate(pool))
    quotas: Mapping[str, float] = data.draw(st.sampled_from([{}, {"a": 0.5}]))
    policies: list[SchedulingPolicy] = [Greedy(), Priced(effort=Effort(steps=50))]
    policy = data.draw(st.sampled_from(policies))
    problem = Problem(tiers=TIERS, candidates=pool[:5], quotas=quotas)
    live = rolling(problem, policy)
    there = {c.query_id for c in pool[:5]}
    machines = {"edge": 2, "cloud": 2}
    now = 0.0
    for _ in range(data.draw(st.integers(1, 10))):
        now += data.draw(st.sampled_from([0.0, 7.0, 65.0]))
        out = [c for c in pool if c.query_id not in there]
        arriving = (
            tuple(data.draw(st.lists(st.sampled_from(out), max_size=3, unique=True)))
            if out
            else ()
        )
        goes = (
            tuple(data.draw(st.lists(st.sampled_from(sorted(there)), max_size=2, unique=True)))
            if there
            else ()
        )
        resized = data.draw(
            st.dictionaries(st.sampled_from(["edge", "cloud"]), st.integers(0, 3), max_size=2)
        )
        before = live.last.schedule.by_query
        step = live.change(Events(arriving=arriving, leaving=goes, machines=resized), now)
        there = (there - set(goes)) | {c.query_id for c in arriving}
        machines |= resized
        asked = live.problem()
        assert validate(asked, step.schedule) == ()
        assert {t.name: t.machines for t in asked.tiers if not t.dedicated} == machines
        assert set(step.schedule.by_query) | set(step.schedule.waiting) == there
        stopped = {d.query_id for d in step.displaced if not d.moved}
        assert stopped == (before.keys() & there) - step.schedule.by_query.keys()
        assert live.times.since.keys() == there


@given(
    shares=st.lists(st.sampled_from([0.3, 0.5, 0.6, 1.0]), min_size=2, max_size=6),
    weights=st.lists(st.sampled_from([0.001, 1.0, 1000.0]), min_size=6, max_size=6),
)
@settings(deadline=None, max_examples=8)
def test_nobody_waits_longer_than_the_bound_while_others_come_and_go(
    shares: list[float], weights: list[float]
) -> None:
    """Services that never end, and passers-by that small steps let in between."""
    queries = tuple(
        replace(candidate(f"q{i}", plan("p", ("cloud", s)), weight=weights[i]), priority=i % 2)
        for i, s in enumerate(shares)
    )
    ageing = Ageing(growth_s=30.0, limit_s=20.0, turn_s=10.0)
    step_s = 5.0
    upkeep = Upkeep(policy=Greedy(), ageing=ageing, every_s=step_s)
    live = RollingSchedule(Problem(tiers=(cloud(2),), candidates=queries), Times(), upkeep, 0.0)
    bound = ageing.longest_wait_s(len(queries) + 1, step_s)
    passing = candidate("passing", plan("p", ("cloud", 0.4)), weight=500.0)
    now, here = 0.0, False
    while now < 2 * bound:
        now += step_s
        events = Events(leaving=("passing",)) if here else Events(arriving=(passing,))
        here = not here
        step = live.change(events, now)
        for query in step.schedule.waiting:
            assert now - live.times.since[query] <= bound


SMALL = plan("p", ("cloud", 0.05))
NAMES = [f"q{i:02}" for i in range(20)]


def problem(*names: str) -> Problem:
    tier = Tier(name="cloud", machines=1)
    return Problem(tiers=(tier,), candidates=tuple(candidate(n, SMALL) for n in names))


@dataclass
class _Allergic:
    """A policy that fails with some queries."""

    to: Collection[str]
    asked: list[int] = field(default_factory=list)
    small_steps: ClassVar[bool] = True

    def schedule(self, problem: Problem) -> Schedule:
        self.asked.append(len(problem.candidates))
        bad = [c.query_id for c in problem.candidates if c.query_id in self.to]
        if bad:
            raise OverflowError(f"cannot digest {bad[0]}")
        return Greedy().schedule(problem)


def test_a_policy_that_fails_with_everybody_is_itself_to_blame() -> None:
    with pytest.raises(OverflowError, match="cannot digest q00"):
        scheduled(problem(*NAMES), _Allergic(NAMES).schedule)


def test_a_policy_that_fails_with_nobody_there_is_to_blame() -> None:
    def broken(problem: Problem) -> Schedule:
        raise WrongSchedule("always")

    with pytest.raises(WrongSchedule, match="always"):
        scheduled(problem(), broken)


@given(st.sets(st.sampled_from(NAMES), max_size=len(NAMES) - 1))
def test_all_but_those_to_blame_are_served_and_these_are_told_why(bad: set[str]) -> None:
    policy = _Allergic(bad)
    schedule = scheduled(problem(*NAMES), policy.schedule)
    assert schedule.by_query.keys() == set(NAMES) - bad
    assert set(schedule.aside) == bad == schedule.waiting.keys()
    for query in bad:
        assert f"OverflowError: cannot digest {query}" in schedule.waiting[query]
    assert len(policy.asked) <= 1 + 2 * (1 + 5 * len(bad))  # 2 log2(n) for each, as promised


def test_who_is_set_aside_stays_so_through_small_steps_and_leaves_like_others() -> None:
    policy = _Allergic({"q01"})
    rolling = RollingSchedule(problem(*NAMES), Times(), Upkeep(policy=policy), now=0.0)
    assert rolling.last.schedule.aside == ("q01",)
    step = rolling.change(Events(arriving=(candidate("new", SMALL),)), now=1.0)
    assert not step.whole
    assert step.schedule.aside == ("q01",)
    assert {"q01"} <= step.schedule.waiting.keys()
    step = rolling.change(Events(leaving=("q01",)), now=2.0)
    assert step.schedule.aside == ()
    assert "q01" not in step.schedule.waiting


def test_a_whole_schedule_tries_only_those_who_were_not_set_aside() -> None:
    policy = _Allergic({"q01"})
    rolling = RollingSchedule(problem(*NAMES), Times(), Upkeep(policy=policy), now=0.0)
    policy.asked.clear()
    newcomers = tuple(candidate(f"n{i}", SMALL) for i in range(9))
    step = rolling.change(Events(arriving=newcomers), now=1.0)
    assert step.whole
    assert policy.asked == [len(NAMES) - 1 + len(newcomers)]
    assert step.schedule.aside == ("q01",)


def test_a_schedule_that_breaks_rules_counts_as_a_failure() -> None:
    @dataclass
    class Lying:
        small_steps: ClassVar[bool] = False

        def schedule(self, problem: Problem) -> Schedule:
            made = Greedy().schedule(problem)
            bad = any(c.query_id == "q00" for c in problem.candidates)
            return replace(made, utilisation={"cloud": 7.0}) if bad else made

    schedule = Upkeep(policy=Lying()).whole(problem("q00", "q01"), {})
    assert schedule.aside == ("q00",)
    assert schedule.by_query.keys() == {"q01"}
