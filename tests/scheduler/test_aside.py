"""Queries with which a policy fails are set aside, so that the others are served."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from circinus.pipelines.model.tiers import Tier
from circinus.scheduler.policies.registry import Greedy
from circinus.scheduler.problem import Problem, Schedule
from circinus.scheduler.rolling.scheduler import (
    Events,
    RollingSchedule,
    Times,
    Upkeep,
    WrongSchedule,
    scheduled,
)
from tests.scheduler.problems import candidate, plan

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
        def schedule(self, problem: Problem) -> Schedule:
            made = Greedy().schedule(problem)
            bad = any(c.query_id == "q00" for c in problem.candidates)
            return replace(made, utilisation={"cloud": 7.0}) if bad else made

    schedule = Upkeep(policy=Lying()).whole(problem("q00", "q01"), {})
    assert schedule.aside == ("q00",)
    assert schedule.by_query.keys() == {"q01"}
