"""Every policy decides every change: one call for a problem, and the service step by step."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest

from circinus.pipelines.clock import ManualClock
from circinus.pipelines.model.tiers import Tier
from circinus.scheduler.compiled.feasibility import same_place
from circinus.scheduler.compiled.placement import fit
from circinus.scheduler.ilp import Ilp
from circinus.scheduler.policies.improvement import Effort
from circinus.scheduler.policies.priced import Priced
from circinus.scheduler.policies.registry import FcfsScheduling, Terms, scheduling_policy
from circinus.scheduler.problem import (
    SCHEDULING_POLICIES,
    Assignment,
    Candidate,
    Problem,
    Schedule,
    SchedulingPolicy,
    validate,
)
from circinus.scheduler.rolling.scheduler import Events, RollingSchedule, Step, Times, Upkeep
from circinus.studies.scheduling.problems import Recipe, problem_of
from tests.scheduler.problems import best_goodput, candidate, cloud, occupied, plan

TIERS = (
    Tier(name="device", dedicated=True),
    Tier(name="edge", machines=1, price_usd_per_hour=1.0),
    Tier(name="cloud", machines=2, price_usd_per_hour=3.0),
)
FEW = (Tier(name="edge", machines=1), Tier(name="cloud", machines=1))
SEEDS = int(os.environ.get("CIRCINUS_TEST_SEEDS", "2"))
"""100 for a figure to quote."""


def policy_of(name: str) -> SchedulingPolicy:
    if name == "priced":  # by steps alone: as quick as the machine is
        return Priced(effort=Effort(steps=60, idle_steps=60), clock=ManualClock())
    return scheduling_policy(name, Terms())


def drawn(queries: int, seed: int, tiers: tuple[Tier, ...] = TIERS) -> tuple[Candidate, ...]:
    return problem_of(Recipe(queries=queries, plans=2, tiers=tiers), seed).candidates


def rolling(policy: SchedulingPolicy, tiers: tuple[Tier, ...] = TIERS) -> RollingSchedule:
    problem = Problem(tiers=tiers, candidates=())
    return RollingSchedule(problem, Times(), Upkeep(policy=policy), 0.0)


def one_by_one(
    live: RollingSchedule, queries: tuple[Candidate, ...], stay: int = 1000
) -> Iterator[tuple[Problem, Step]]:
    """Let queries arrive, the oldest leave once so many live; with what the policy is asked."""
    for query in queries:
        before = live.problem()
        leaving = tuple(c.query_id for c in before.candidates[: len(before.candidates) - stay])
        running = {q: a for q, a in before.running.items() if q not in leaving}
        there = before.without(leaving).candidates
        problem = replace(before, candidates=(*there, query), running=running)
        yield problem, live.change(Events(arriving=(query,), leaving=leaving), 0.0)


def benefit(problem: Problem, schedule: Schedule) -> float:
    served = schedule.by_query
    return sum(c.weight for c in problem.candidates if c.query_id in served)


# --- All of them -----------------------------------------------------------------------


@pytest.mark.parametrize("name", SCHEDULING_POLICIES)
def test_once_a_whole_schedule_was_due_the_service_has_what_one_call_chooses(name: str) -> None:
    policy = policy_of(name)
    live = rolling(policy)
    for _ in one_by_one(live, drawn(25, seed=1), stay=20):
        pass
    problem = live.problem()
    assert live.last.schedule.waiting
    again = RollingSchedule(problem, live.times, Upkeep(policy=policy), 0.0).last
    assert again.whole
    assert again.displaced == ()
    assert again.schedule == policy.schedule(problem)


@pytest.mark.parametrize("name", [n for n in SCHEDULING_POLICIES if n != "priced"])
def test_at_every_step_the_service_has_what_one_call_chooses(name: str) -> None:
    policy = policy_of(name)
    for problem, step in one_by_one(rolling(policy), drawn(25, seed=2), stay=20):
        assert step.whole
        assert step.schedule == policy.schedule(problem)


@pytest.mark.parametrize("name", SCHEDULING_POLICIES)
def test_nobody_who_runs_is_moved_for_one_who_comes_or_goes(name: str) -> None:
    for problem, step in one_by_one(rolling(policy_of(name)), drawn(25, seed=3), stay=20):
        assert validate(problem, step.schedule) == ()
        now = step.schedule.by_query
        assert all(same_place(now[q], at) for q, at in problem.running.items())


def test_a_replanned_query_keeps_its_place_in_the_order_of_arrival() -> None:
    live = rolling(FcfsScheduling(), (cloud(),))
    whole = [candidate(name, plan("p", ("cloud", 1.0))) for name in ("runs", "old", "young")]
    live.change(Events(arriving=tuple(whole)), 0.0)
    other = replace(whole[1], plans=(plan("other", ("cloud", 0.9)),))
    live.change(Events(leaving=("old",), arriving=(other,)), 1.0)
    assert [c.query_id for c in live.problem().candidates] == ["runs", "old", "young"]
    step = live.change(Events(leaving=("runs",)), 2.0)
    assert list(step.schedule.by_query) == ["old"]


def test_who_loses_its_machine_is_placed_anew_by_the_policy() -> None:
    # the oldest waits; whoever loses its machine stands behind it in the line
    live = rolling(FcfsScheduling(), (cloud(2),))
    half, full = plan("p", ("cloud", 0.5)), plan("p", ("cloud", 1.0))
    arriving = [candidate("a", full), candidate("b", half), candidate("c", full)]
    step = live.change(Events(arriving=tuple(arriving)), 0.0)
    assert step.schedule.by_query.keys() == {"a", "b"}
    step = live.change(Events(machines={"cloud": 1}), 1.0)
    assert step.schedule.by_query.keys() == {"a"}
    step = live.change(Events(machines={"cloud": 2}), 2.0)
    assert step.schedule.by_query.keys() == {"a", "b"}


# --- Shares of one call's benefit ---------------------------------------------------------


def mean_share(name: str, seeds: range) -> float:
    """Return the mean share of one call's benefit that steps have."""
    policy, shares = policy_of(name), []
    for seed in seeds:
        for problem, step in one_by_one(rolling(policy), drawn(25, seed), stay=22):
            best = benefit(problem, policy.schedule(problem))
            shares.append(benefit(problem, step.schedule) / best if best else 1.0)
    return sum(shares) / len(shares)


@pytest.mark.timeout(900)  # a hundred seeds take minutes
@pytest.mark.parametrize("name", ["priced", "greedy"])
def test_steps_have_nearly_all_of_the_benefit_of_one_call(name: str) -> None:
    share = mean_share(name, range(SEEDS))
    print(f"\n{name}: {share:.4f} of one call, {SEEDS} seeds")  # noqa: T201 - shown by `pytest -s`
    assert share >= 0.99


# --- First come, first served ---------------------------------------------------------------


def first_come(
    tiers: tuple[Tier, ...], line: tuple[Candidate, ...], running: Mapping[str, Assignment]
) -> set[str]:
    """Return whom a line is served that is gone through once, each by its cheapest plan."""
    slices = [s for at in running.values() for s in at.machines]
    served = set(running)
    for query in line:
        room = occupied(tiers, *slices)
        cheapest = min(query.plans, key=lambda p: (p.cost_usd_per_hour, p.plan_id))
        there = fit(cheapest.demand, room)
        if query.query_id not in served and not there.missing:
            served.add(query.query_id)
            slices += there.slices.values()
    return served


@pytest.mark.parametrize("seed", range(5))
def test_first_come_first_served_is_the_order_of_arrival_exactly(seed: int) -> None:
    shared = TIERS[1:]
    policy = FcfsScheduling()
    for problem, step in one_by_one(rolling(policy, shared), drawn(30, seed, shared), stay=20):
        expected = first_come(shared, problem.candidates, problem.running)
        assert step.schedule.by_query.keys() == expected


@pytest.mark.parametrize("seed", range(5))
def test_nothing_but_arrivals_are_served_as_one_call_from_empty_machines(seed: int) -> None:
    policy, queries = FcfsScheduling(), drawn(30, seed)
    live = rolling(policy)
    for _ in one_by_one(live, queries):
        pass
    at_once = policy.schedule(Problem(tiers=TIERS, candidates=queries))
    assert live.last.schedule == at_once


# --- The integer program --------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_with_moves_the_integer_program_has_the_optimum_at_every_step(seed: int) -> None:
    queries = drawn(9, seed, FEW)
    for problem, step in one_by_one(rolling(Ilp(moves=True), FEW), queries, stay=5):
        assert benefit(problem, step.schedule) == pytest.approx(best_goodput(problem))


@pytest.mark.parametrize("seed", range(4))
def test_without_moves_the_choice_of_newcomers_is_optimal_beside_what_runs(seed: int) -> None:
    queries = drawn(9, seed, FEW)
    for problem, step in one_by_one(rolling(Ilp(), FEW), queries, stay=5):
        now = step.schedule.by_query
        assert all(same_place(now[q], at) for q, at in problem.running.items())
        assert benefit(problem, step.schedule) == pytest.approx(best_goodput(problem, stays=True))
