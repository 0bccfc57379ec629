from __future__ import annotations

import csv
import json
from collections.abc import Callable
from dataclasses import replace
from math import isnan
from pathlib import Path

import numpy as np
import pytest

from circinus.pipelines.clock import ManualClock
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.io.trace import Trace
from circinus.pipelines.model.graph import PipelineGraph
from circinus.pipelines.model.operators import Knob, OperatorSpec
from circinus.pipelines.model.tiers import Tier
from circinus.scheduler.problem import (
    Assignment,
    Objective,
    Problem,
    Schedule,
    Slice,
    utilisation,
    validate,
)
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
from circinus.studies.trace.stalling import Stalls, stalled

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
    baselines = {policy for policy, method in methods.items() if not method}
    assert baselines == {*POLICIES} - {"priced", "greedy"}
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


# Source `a` with two settings, then `b` with two: configurations 0 and 1 share the runs of `a`,
# 2 and 3 do.
GRAPH = PipelineGraph(
    name="two",
    operators=(
        OperatorSpec(name="a", knobs=(Knob(name="x", values=(1, 2)),)),
        OperatorSpec(name="b", after=("a",), knobs=(Knob(name="y", values=(1, 2)),)),
    ),
)
INPUTS = 20_000


def trace(inputs: int = INPUTS) -> Trace:
    return Trace(
        graph=GRAPH,
        configurations=np.array([[0, 0], [0, 1], [1, 0], [1, 1]], np.int16),
        score=np.full((4, inputs), 0.5, np.float32),
        latency_s=np.full((4, 2, inputs), 0.02, np.float32),
        output_bytes=np.ones((4, 2, inputs), np.float32),
        input_bytes=np.ones(inputs, np.float32),
        features=np.zeros((inputs, 1), np.float32),
    )


@pytest.mark.parametrize("field", ["every_s", "stall_s"])
def test_stalls_without_a_positive_time_are_refused(field: str) -> None:
    with pytest.raises(InvalidInput, match=f"{field} must be .*> 0, got 0"):
        replace(Stalls(), **{field: 0})


def test_a_failed_run_stays_without_seconds() -> None:
    before = trace(inputs=10)
    before.latency_s[0, :, 3] = before.score[0, 3] = np.nan  # configuration 1 shares a run of `a`
    after = stalled(before, Stalls())
    assert np.isnan(after.latency_s[0, :, 3]).all()
    assert np.isnan(after.latency_s).sum() == 2


def test_what_configurations_share_stalls_once_for_all_of_them() -> None:
    after = stalled(trace(), Stalls())  # a Trace checks it, too
    np.testing.assert_array_equal(after.latency_s[0, 0], after.latency_s[1, 0])
    assert (after.latency_s[0, 0] != after.latency_s[2, 0]).any()
    assert (after.latency_s[0, 1] != after.latency_s[1, 1]).any()


def test_stalls_come_as_often_and_take_as_long_as_said() -> None:
    # A run of 0.02 s meets at least one stall with 1 - exp(-0.02 / 0.25) = 7.69 %, and takes
    # 0.02 (1 + 0.1 / 0.25) = 0.028 s on average. 120,000 runs: standard errors of 0.08 % and
    # 0.12 ms (the deviation is sqrt(2 * 0.08) * 0.1 = 0.04 s); four of them allow for 1 in 15,000.
    after = stalled(trace(), Stalls(every_s=0.25, stall_s=0.1, seed=3))
    runs = after.latency_s[[0, 2, 0, 1, 2, 3], [0, 0, 1, 1, 1, 1]]
    assert float((runs > 0.0201).mean()) == pytest.approx(0.0769, abs=0.0032)
    assert float(runs.mean()) == pytest.approx(0.028, abs=0.00048)


def test_a_seed_names_the_stalls_and_scores_stay() -> None:
    one, again, other = (stalled(trace(100), Stalls(seed=seed)) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.latency_s, again.latency_s)
    assert (one.latency_s != other.latency_s).any()
    np.testing.assert_array_equal(one.score, trace(100).score)
    assert one.graph.name == "two_stalled"
