from __future__ import annotations

import csv
import json
from collections.abc import Callable
from dataclasses import replace
from math import isnan
from pathlib import Path

import pytest

from circinus.pipelines.clock import ManualClock
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.tiers import Tier
from circinus.scheduler.ilp import Objective
from circinus.scheduler.problem import Assignment, Problem, Schedule, Slice, utilisation, validate
from circinus.studies.report.tables import version
from circinus.studies.scheduling.gap import (
    POLICIES,
    GapRow,
    Question,
    Stopwatch,
    relaxed_bound,
    run,
    summary,
)
from circinus.studies.scheduling.problems import Draw, ProblemCase, cases

TIERS = (
    Tier(name="edge", machines=1, price_usd_per_hour=2.5),
    Tier(name="cloud", machines=1, price_usd_per_hour=3.7),
)
STOPWATCH = Stopwatch(wall=ManualClock(), cpu=ManualClock())
DRAW = Draw(queries=(4, 9), plans=3, tiers=TIERS, seeds=2)


@pytest.mark.parametrize(
    ("build", "rule"),
    [
        (lambda: Question(policies=("best",)), "policies must be among greedy, .*, got 'best'"),
        (lambda: Question(policies=()), "policies must name one at least"),
        (lambda: Question(policies=("ilp", "ilp")), "policies must not repeat, got 'ilp'"),
        (lambda: Question(time_limit_s=0), "time_limit_s must be finite and > 0, got 0"),
        (lambda: replace(DRAW, queries=(0,)), "queries must be >= 1, got 0"),
        (lambda: replace(DRAW, plans=0), "plans must be finite and > 0, got 0"),
        (lambda: replace(DRAW, seeds=0), "seeds must be finite and > 0, got 0"),
        (lambda: replace(DRAW, first_seed=-1), "first_seed must be finite and >= 0, got -1"),
        (lambda: replace(DRAW, load=0.0), "load must be finite and > 0, got 0.0"),
    ],
)
def test_bounds_of_the_settings(build: Callable[[], object], rule: str) -> None:
    with pytest.raises(InvalidInput, match=rule):
        build()


@pytest.mark.parametrize("objective", Objective)
def test_every_policy_gets_a_line_and_none_is_better_than_the_bound(
    objective: Objective, tmp_path: Path
) -> None:
    question = Question(objective=objective)
    rows = run(cases(DRAW, objective), question, tmp_path / "out", stopwatch=STOPWATCH)
    assert [(r.queries, r.seed, r.policy) for r in rows] == [
        (n, seed, policy) for n in (4, 9) for seed in (0, 1) for policy in POLICIES
    ]
    for row in rows:
        assert row.proven
        better = row.ratio > 1 + 1e-6 if objective is Objective.GOODPUT else row.ratio < 1 - 1e-6
        assert not better
        if row.policy == "ilp":
            assert row.ratio == pytest.approx(1.0)
    with (tmp_path / "out" / "ilp.csv").open() as file:
        written = list(csv.DictReader(file))
    assert [float(line["goodput"]) for line in written] == [row.goodput for row in rows]
    assert list(written[0]) == [
        "queries",
        "plans",
        "tiers",
        "seed",
        "policy",
        "method",
        "objective",
        "served",
        "goodput",
        "cost",
        "bound",
        "proven",
        "seconds",
        "version",
    ]
    methods = {line["policy"]: line["method"] for line in written}
    assert {policy for policy, method in methods.items() if not method} == {
        "fcfs",
        "local_best",
        "ilp",
    }
    assert (methods["priced"], methods["greedy"]) == ("default", "published")
    assert {line["version"] for line in written} == {version()}
    page = (tmp_path / "out" / "ilp.html").read_text()
    assert "<svg" in page
    assert all(policy in page for policy in POLICIES)


def test_what_was_chosen_can_be_checked_by_others(tmp_path: Path) -> None:
    (case,) = cases(replace(DRAW, queries=(6,), seeds=1), Objective.GOODPUT)
    rows = run([case], Question(), tmp_path, schedule_out=tmp_path / "chosen.json")
    for row, chosen in zip(rows, json.loads((tmp_path / "chosen.json").read_text()), strict=True):
        assignments = tuple(
            Assignment(
                query_id=a["query"],
                plan_id=a["plan"],
                machines=tuple(Slice(**slice_) for slice_ in a["machines"]),
            )
            for a in chosen["assignments"]
        )
        schedule = Schedule(
            assignments=assignments,
            waiting=chosen["waiting"],
            utilisation=utilisation(case.problem, assignments),
        )
        assert validate(case.problem, schedule) == ()
        assert (chosen["policy"], len(assignments)) == (row.policy, row.served)


def test_a_problem_without_queries_is_no_error(tmp_path: Path) -> None:
    case = ProblemCase(name="empty", problem=Problem(tiers=TIERS, candidates=()))
    for objective in Objective:
        rows = run([case], Question(objective=objective), tmp_path)
        assert {row.ratio for row in rows} == {1.0}


def test_a_cost_that_does_not_serve_all_has_no_ratio() -> None:
    row = GapRow(
        queries=2, plans=1, tiers=1, seed=0, policy="greedy", method="published", objective="cost",
        served=1, goodput=1.0, cost=2.0, bound=1.0, proven=True, seconds=0.0, cpu_seconds=0.0,
    )  # fmt: skip
    assert isnan(row.ratio)
    assert replace(row, served=2).ratio == 2.0


def test_a_load_sets_the_machines() -> None:
    (case,) = cases(replace(DRAW, queries=(30,), seeds=1, load=1.5), Objective.GOODPUT)
    least = sum(
        min(sum(i.share for i in p.demand) for p in c.plans) for c in case.problem.candidates
    )
    (machines,) = {tier.machines for tier in case.problem.tiers}
    assert machines == round(least / 1.5 / 2)


def test_the_bound_of_the_relaxation_is_that_of_the_shares() -> None:
    # the only query's cheapest plan costs 0.5 x 2.5 by shares
    (case,) = cases(replace(DRAW, queries=(1,), seeds=1), Objective.COST)
    prices = {t.name: t.price_usd_per_hour for t in TIERS}
    (candidate,) = case.problem.candidates
    least = min(sum(prices[t] * s for t, s in p.demand) for p in candidate.plans)
    assert relaxed_bound(case.problem, Objective.COST) == pytest.approx(least)


def test_the_summary_tells_the_worst_of_each_objective(tmp_path: Path) -> None:
    for objective, worst in ((Objective.GOODPUT, min), (Objective.COST, max)):
        rows = run(cases(DRAW, objective), Question(objective=objective), tmp_path)
        for line in summary(rows):
            of = [r.ratio for r in rows if (r.policy, r.queries) == (line.policy, line.queries)]
            assert line.worst_ratio == worst(of)
            assert line.problems == line.proven == 2
