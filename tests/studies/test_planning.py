import csv
import json
from dataclasses import replace
from math import isnan
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.io.trace import load_trace, save_trace
from circinus.pipelines.model.query import PlanningLimits, Query
from circinus.profiler.drawing import Drawing
from circinus.studies.planning.ground_truth import LEVELS, GroundTruth, drawn
from circinus.studies.planning.methods import FixedSamples, names, study_method
from circinus.studies.planning.report import Coverage, PlanningCell, coverage, summary
from circinus.studies.planning.splitting import halves
from circinus.studies.planning.study import (
    ONE_TIER,
    PlanningStudy,
    StudyProgress,
    earlier_queries,
    method_for,
    replayed,
    run,
)
from circinus.studies.report.tables import markdown
from tests.api.cli.commands import invoke
from tests.studies.planning_rows import ROW
from tests.studies.traces import chain_trace


def _study(folder: Path, **others: object) -> PlanningStudy:
    save_trace(chain_trace(), folder / "trace")
    study = PlanningStudy(
        traces=(folder / "trace",),
        methods=("default",),
        levels=("easy",),
        seeds=1,
        first_only=True,
    )
    return replace(study, **others)  # type: ignore[arg-type]


def test_an_unknown_strategy_is_refused() -> None:
    with pytest.raises(InvalidInput, match="method must be among"):
        study_method("magic", published_inputs=50)


@pytest.mark.parametrize(
    "name", ["published@20", "default@20", "cmbo_tuned@", "cmbo_tuned@x", "cmbo_tuned@1"]
)
def test_a_number_of_inputs_that_cannot_be_taken_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match=f"method may end with @ .* got '{name}'"):
        study_method(name, published_inputs=50)


@pytest.mark.parametrize("name", ["cmbo_tuned", "vulcan_tuned", "random_tuned"])
def test_a_tuned_strategy_measures_on_as_many_inputs_as_it_is_told(name: str) -> None:
    drawing = Drawing(order=np.arange(50), groups=None)
    for request_payload, count in ((f"{name}@7", 7), (name, 20)):
        planner = study_method(request_payload, published_inputs=50).planner
        assert planner.rule(drawing) == FixedSamples(count=count)


@pytest.mark.parametrize("name", ["optuna_tpe", "botorch@30"])
def test_an_adapter_whose_package_is_missing_names_the_extra(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("circinus.pipelines.execution.needs.find_spec", lambda _: None)
    package = name.partition("_")[0].partition("@")[0]
    with pytest.raises(InvalidInput, match=rf"method must be .*{package} .*circinus\[studies\]"):
        study_method(name, published_inputs=50)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"methods": ("random", "magic")}, "method must be among"),
        ({"methods": ("random",), "levels": ("easy", "absurd")}, "slo must be among"),
    ],
)
def test_a_study_is_refused_before_its_first_run(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        PlanningStudy(traces=(), **wrong)


def test_an_unknown_level_is_refused() -> None:
    with pytest.raises(InvalidInput, match="slo must be among easy, medium, hard"):
        GroundTruth(chain_trace(), ONE_TIER).goals("absurd")


def test_the_oracle_is_the_brute_force_optimum() -> None:
    truth = GroundTruth(chain_trace(), ONE_TIER)
    for goal in truth.goals("medium"):
        feasible = [
            c
            for c in range(12)
            if truth.accuracy[c] >= goal.slo.accuracy - 1e-9
            and truth.latency_s[c] <= goal.slo.latency_s
        ]
        fastest = min(truth.latency_s[c] for c in feasible)
        # Least share in steps of 0.05 at 1 USD per hour.
        steps = np.ceil(fastest / goal.slo.latency_s * 20 - 1e-6)
        assert goal.least_cost == pytest.approx(0.05 * steps)
        assert goal.oracle_s == pytest.approx(20 * min(truth.profiling_s[c] for c in feasible))


def test_every_contestant_finds_a_true_plan_in_a_small_space(tmp_path: Path) -> None:
    study = _study(tmp_path, methods=names())
    rows = run(study, tmp_path / "out")
    assert {row.method for row in rows} == set(names())
    assert all(row.found for row in rows)
    with (tmp_path / "out" / "planning.csv").open() as file:
        read = list(csv.DictReader(file))
    assert len(read) == len(rows)
    assert "default" in markdown(summary(rows), PlanningCell)
    assert load_trace(tmp_path / "trace").graph == chain_trace().graph


def test_an_observer_is_told_of_every_run_and_of_how_many_there_are(tmp_path: Path) -> None:
    study = _study(tmp_path, methods=("default", "random"), seeds=2)
    told: list[StudyProgress] = []
    rows = run(study, tmp_path / "out", observer=told.append)
    assert [progress.row for progress in told] == rows
    each = len(rows) // 2
    assert [progress.done for progress in told] == [*range(1, each + 1)] * 2
    assert {progress.runs for progress in told} == {each}


def test_a_tuned_strategy_announces_on_as_few_inputs_as_it_is_told(tmp_path: Path) -> None:
    study = _study(tmp_path, methods=("random_tuned@4",), seeds=2, budget_s=20.0)
    rows = run(study, tmp_path / "out")
    assert any(row.found for row in rows)


@pytest.mark.parametrize("workers", [1, 3])
def test_workers_shorten_the_response_and_not_the_profiling(tmp_path: Path, workers: int) -> None:
    study = _study(tmp_path, levels=("medium",), seeds=2, workers=workers)
    rows = run(study, tmp_path / "out")
    assert {row.workers for row in rows} == {workers}
    for row in rows:
        least = row.profiling_seconds / workers
        assert least <= row.response_seconds * (1 + 1e-9)
        assert row.response_seconds <= row.profiling_seconds * (1 + 1e-9)
    (cell,) = summary(rows)
    shorter = cell.response_s < 0.7 * cell.mean_s
    assert shorter == (workers > 1)


def test_no_plan_costs_less_than_the_optimum(tmp_path: Path) -> None:
    study = _study(tmp_path, methods=("default", "random"), first_only=False)
    ratios = [row.cost_ratio_60s for row in run(study, tmp_path / "out")]
    assert ratios
    assert all(ratio is not None and ratio >= 1 - 1e-9 for ratio in ratios)


def test_halves_share_no_input_and_miss_none() -> None:
    trace = replace(chain_trace(), input_bytes=np.arange(60, dtype=np.float32))
    before, now = halves(trace, 3)
    both = np.concatenate([before.input_bytes, now.input_bytes])
    assert sorted(both) == list(range(60))
    assert len(before.input_bytes) == len(now.input_bytes) == 30


def test_a_study_with_history_runs_every_query_without_and_with_it(tmp_path: Path) -> None:
    study = _study(tmp_path, history=2)
    rows = run(study, tmp_path / "out")
    assert [row.history for row in rows] == [0, 2] * (len(rows) // 2)
    assert all(row.found for row in rows)
    assert {cell.history for cell in summary(rows)} == {0, 2}


@pytest.mark.parametrize("name", ["published", "vulcan", "random_tuned"])
def test_earlier_queries_are_planned_by_the_method_under_test(name: str) -> None:
    """What is remembered is what a search of that method measures, for the same SLO and seed."""
    truth = GroundTruth(chain_trace(), ONE_TIER)
    records = earlier_queries(truth, name, count=3, seed=1, budget_s=0.5)
    ours = earlier_queries(truth, "default", count=3, seed=1, budget_s=0.5)
    assert [record.slo for record in records] == [record.slo for record in ours]  # same queries
    assert records != ours
    rng = np.random.default_rng([1, 2])
    slos = [slo for level in LEVELS for slo in truth.slos(level)]
    limits = PlanningLimits(profiling_s=0.5, response_s=None)
    for record in records[::-1]:
        slo, seed = slos[int(rng.integers(len(slos)))], int(rng.integers(2**31))
        who = method_for(name, truth, slo)
        query = Query(pipeline=truth.trace.graph.name, slo=slo, seed=seed, limits=limits)
        drawing, evaluator = replayed(who.planner, truth.trace, seed, cached=who.cached)
        result = who.planner.search(query, ONE_TIER, evaluator, drawing)
        assert record.slo == slo
        assert record.configurations == result.configurations


@pytest.mark.parametrize("wrong", [0.0, -1.0, float("nan")])
def test_earlier_queries_need_seconds(wrong: float) -> None:
    with pytest.raises(InvalidInput, match="history_budget_s must be finite and > 0"):
        PlanningStudy(traces=(), methods=("default",), history_budget_s=wrong)


def test_accuracy_and_latency_have_levels_of_their_own() -> None:
    truth = GroundTruth(chain_trace(), ONE_TIER)
    mixed, hard, easy = (truth.slos(level) for level in ("hard-easy", "hard", "easy"))
    assert [slo.accuracy for slo in mixed] == [slo.accuracy for slo in hard]
    assert [slo.latency_s for slo in mixed] == [slo.latency_s for slo in easy]
    assert truth.slos("medium-medium") == truth.slos("medium")


@pytest.mark.parametrize("level", ["hard-absurd", "absurd-hard", "hard-", "hard-easy-hard", ""])
def test_a_pair_of_levels_that_is_none_is_refused(level: str) -> None:
    with pytest.raises(InvalidInput, match=r"two of them, ACCURACY-LATENCY, got"):
        PlanningStudy(traces=(), methods=("default",), levels=(level,))


def test_drawn_queries_are_of_pareto_points_of_the_whole_trace(tmp_path: Path) -> None:
    """Accuracy of 0.85 of a point's, latency of 1.5 times its (6.1); the points by brute force."""
    truth, seeds = GroundTruth(chain_trace(), ONE_TIER), 3
    pairs = list(zip(truth.accuracy.tolist(), truth.latency_s.tolist(), strict=True))
    points = [
        (a, s)
        for a, s in pairs
        if not any((b >= a and t < s - 1e-12) or (b > a + 1e-9 and t <= s) for b, t in pairs)
    ]
    rows = run(_study(tmp_path, levels=("medium",), drawn=4, seeds=seeds), tmp_path / "out")
    assert [row.seed for row in rows] == [0] * 4 + [1] * 4 + [2] * 4
    for row in rows:
        apart = [
            max(abs(row.accuracy_slo / 0.85 - a), abs(row.latency_slo_s / 1.5 - s))
            for a, s in points
        ]
        assert min(apart) < 1e-6
    assert len({row.accuracy_slo for row in rows}) > 2


def test_points_are_drawn_uniformly() -> None:
    """Chi-square at 0.1 %: 27.9 for nine degrees of freedom."""
    counts = np.bincount(drawn(range(10), 10_000, seed=3), minlength=10)
    assert ((counts - 1000) ** 2 / 1000).sum() < 27.9
    assert drawn(range(10), 5, seed=3) != drawn(range(10), 5, seed=4)


def test_drawn_queries_leave_no_choice_of_points() -> None:
    with pytest.raises(InvalidInput, match="points must be left out with drawn, got 3"):
        PlanningStudy(traces=(), methods=("default",), points=3, drawn=2)
    with pytest.raises(InvalidInput, match="drawn must be >= 1, got 0"):
        PlanningStudy(traces=(), methods=("default",), drawn=0)


def test_fewer_than_two_points_are_refused() -> None:
    with pytest.raises(InvalidInput, match="points must be >= 2, got 1"):
        PlanningStudy(traces=(), methods=("published",), points=1)


def test_fewer_points_keep_the_fastest_and_the_most_accurate_one(tmp_path: Path) -> None:
    every = {row.accuracy_slo for row in run(_study(tmp_path), tmp_path / "all")}
    some = [row.accuracy_slo for row in run(_study(tmp_path, points=3), tmp_path / "some")]
    assert len(every) > 3
    assert len(some) == 3
    assert set(some) < every
    assert {min(some), max(some)} == {min(every), max(every)}


def test_a_run_measures_no_more_configurations_than_it_may(tmp_path: Path) -> None:
    study = _study(tmp_path, methods=("random",), levels=("hard",), configurations=3, seeds=3)
    capped = run(study, tmp_path / "capped")
    free = run(replace(study, configurations=None), tmp_path / "free")
    assert all(row.found for row in free)
    assert {row.found for row in capped} == {True, False}
    assert {row.profiling_seconds for row in capped if not row.found} == {study.budget_s}


def test_the_command_tells_what_nobody_measured_as_null(tmp_path: Path) -> None:
    (folder,) = _study(tmp_path).traces
    words = ["--trace", str(folder), "--out", str(tmp_path / "out"), "--methods", "default"]
    words += ["--slo", "easy", "--seeds", "1", "--points", "2", "--first-only", "--json"]
    result = invoke("study", "planning", *words)
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert told["cells"][0]["cost_20s"] is None  # a run that ends early has no cost after 20 s
    assert {line["trace"] for line in told["calibration"]} == {chain_trace().graph.name, "all"}
    assert {path.suffix for path in (tmp_path / "out").iterdir()} == {".csv", ".svg"}


def _of(lines: list[Coverage], trace: str) -> Coverage:
    (line,) = (one for one in lines if one.trace == trace)
    return line


def test_searches_that_showed_nothing_say_nothing() -> None:
    nothing = replace(
        ROW,
        shown=0,
        met=0,
        met_wrongly=0,
        accuracy_covered=0,
        latency_covered=0,
        latency_sure=0,
        latency_sure_covered=0,
    )
    assert coverage([nothing]) == []
    assert _of(coverage([ROW, nothing]), "a").searches == 1


def test_where_nothing_was_met_or_sure_no_part_of_it_is_told() -> None:
    cautious = replace(ROW, met=0, met_wrongly=0, latency_sure=0, latency_sure_covered=0)
    line = _of(coverage([cautious]), "a")
    assert line.met == line.sure == 0.0
    assert isnan(line.met_wrongly)
    assert isnan(line.latency_sure)


def test_plans_of_a_trace_count_alike_whichever_search_showed_them() -> None:
    line = _of(coverage([ROW, replace(ROW, shown=30, accuracy_covered=30)]), "a")
    assert line.plans == 40
    assert line.accuracy == pytest.approx(39 / 40)
    assert line.met_wrongly == pytest.approx(2 / 8)


def test_traces_count_alike_however_many_plans_they_have() -> None:
    many = replace(ROW, trace="b", shown=1_000, accuracy_covered=1_000)
    whole = _of(coverage([ROW, many]), "all")
    assert whole.accuracy == pytest.approx((0.9 + 1.0) / 2)
    # Two figures, 0.9 and 1.0: Student's t with one degree of freedom, cut off at 1.
    assert whole.accuracy_interval == "0.315 to 1.000"
    assert _of(coverage([ROW, many]), "b").accuracy_interval == ""


def test_methods_are_told_apart() -> None:
    lines = coverage([ROW, replace(ROW, method="published", accuracy_covered=5)])
    assert [(line.method, line.trace, line.accuracy) for line in lines] == [
        ("default", "a", 0.9),
        ("default", "all", 0.9),
        ("published", "a", 0.5),
        ("published", "all", 0.5),
    ]
