from __future__ import annotations

import csv
import json
import math
from dataclasses import replace
from pathlib import Path
from statistics import mean

import numpy as np
import pytest

from circinus.api.text.screen import json_text
from circinus.deploy.planning import sampling_of, stopping_rule
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.io.trace import Trace, save_trace
from circinus.pipelines.model.graph import PipelineGraph
from circinus.pipelines.model.operators import Knob, OperatorSpec
from circinus.pipelines.model.profile import StoppingRule, Verdict
from circinus.pipelines.model.query import SAMPLING, STOPPING
from circinus.profiler.drawing import Drawing
from circinus.profiler.stopping import TTest
from circinus.studies.profiling import simulated_profiles as simulated
from circinus.studies.profiling import study
from circinus.studies.profiling.simulated_profiles import (
    RULES,
    Population,
    draw,
    end,
    of_trace,
    orders,
    prefix_cache_ratio,
)
from circinus.studies.report.tables import version


def population(*, inputs: int = 60, groups: bool = True, seed: int = 0) -> Population:
    rng = np.random.default_rng(seed)
    labels = np.arange(inputs) % 10
    means = np.array([[0.3], [0.5], [0.6], [0.7], [0.9]])
    scores = (rng.random((5, inputs)) < means).astype(np.float64)
    return Population(
        strata="by chance",
        name="made",
        scores=scores,
        seconds=rng.uniform(0.1, 1, (5, inputs)),
        groups=labels if groups else None,
    )


def trace(*, failing: int = 0, features: int = 2) -> Trace:
    graph = PipelineGraph(
        name="made",
        operators=(OperatorSpec(name="only", knobs=(Knob(name="k", values=(0, 1, 2)),)),),
    )
    rng = np.random.default_rng(0)
    score = rng.integers(0, 2, (3, 40)).astype(np.float32)
    score[:failing, 0] = np.nan
    return Trace(
        graph=graph,
        configurations=np.arange(3, dtype=np.int16)[:, None],
        score=score,
        latency_s=np.full((3, 1, 40), 0.5, np.float32),
        output_bytes=np.ones((3, 1, 40), np.float32),
        input_bytes=np.ones(40, np.float32),
        features=rng.random((40, features)).astype(np.float32),
    )


def test_fewer_seeds_than_one_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="seeds must be >= 1, got 0"):
        study.run([], 0, tmp_path)


def test_a_folder_without_a_trace_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="trace must be a readable file"):
        study.run([tmp_path], 1, tmp_path / "out")


def test_a_trace_in_which_everything_failed_is_refused() -> None:
    with pytest.raises(InvalidInput, match="must have a configuration that never failed"):
        of_trace("made", trace(failing=3), np.random.default_rng(0))


def test_configurations_that_failed_somewhere_are_left_out() -> None:
    assert len(of_trace("made", trace(failing=1), np.random.default_rng(0)).scores) == 2


def test_a_trace_without_features_has_no_groups() -> None:
    rng = np.random.default_rng(0)
    without, having = of_trace("made", trace(features=0), rng), of_trace("made", trace(), rng)
    assert without.groups is None
    assert without.strata == "none, as the inputs have no features that differ"
    assert having.groups is not None
    assert having.strata == "by 2 features of the trace"


@pytest.mark.parametrize("sampling", SAMPLING)
@pytest.mark.parametrize("name", list(RULES))
@pytest.mark.parametrize("distance", [-0.303, -0.051, 0.021, 0.149])
def test_profiles_end_where_the_production_rule_ends_them(
    name: str, sampling: str, distance: float
) -> None:
    made = population()
    order = orders(made, sampling, 8, np.random.default_rng(1))
    drawn = draw(made, order, distance, np.random.default_rng(2))
    assert drawn is not None
    ended = end(RULES[name], drawn)
    for row in range(len(order)):
        rule: StoppingRule = RULES[name].rule
        stopping = RULES[name].stopping
        if stopping is not None:
            assert drawn.groups is not None
            rule = stopping_rule(stopping, Drawing(order=order[row], groups=drawn.groups[row]))
        verdict, used = Verdict.UNDECIDED, 0
        while verdict is Verdict.UNDECIDED and used < 60:
            used += 1
            verdict = rule.judge(
                drawn.scores[row, :used], bound=float(drawn.bounds[row]), population=60
            )
        assert ended.inputs[row] == used
        assert {1: Verdict.ABOVE, -1: Verdict.BELOW}[int(ended.signs[row])] is verdict
        assert ended.seconds[row] == pytest.approx(drawn.seconds[row, :used].sum())


def test_long_profiles_go_on_from_one_horizon_to_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = population(inputs=300)
    order = orders(made, "random", 50, np.random.default_rng(1))
    drawn = draw(made, order, 0.1, np.random.default_rng(2))
    assert drawn is not None
    staged = [end(rule, drawn).inputs for rule in RULES.values()]
    monkeypatch.setattr(simulated, "_HORIZONS", ())
    for stages, rule in zip(staged, RULES.values(), strict=True):
        assert np.array_equal(stages, end(rule, drawn).inputs)


def test_the_bound_lies_at_its_distance_and_in_reach() -> None:
    made = population()
    order = orders(made, "random", 200, np.random.default_rng(1))
    drawn = draw(made, order, 0.25, np.random.default_rng(2))
    assert drawn is not None
    assert np.allclose(drawn.bounds - drawn.scores.mean(axis=1), 0.25)
    assert (drawn.bounds <= 1).all()
    assert draw(made, order, 0.9, np.random.default_rng(2)) is None


def test_a_cell_that_no_configuration_reaches_has_no_figures() -> None:
    rows = list(study.study(population(), 10, distances=(0.9,)))
    assert {row.profiles for row in rows} == {0}
    assert all(math.isnan(row.inputs_mean) for row in rows)
    assert json.loads(json_text(rows[0]))["wrong_rate"] is None


def test_strata_that_tell_the_score_lower_the_variance_and_others_do_not() -> None:
    made = population(inputs=200)
    telling = replace(made, scores=np.tile((np.arange(200) % 10) / 10.0, (3, 1)))
    assert study.variance_ratio(telling, "stratified", 400) < 0.05
    assert study.variance_ratio(made, "random", 400) == 1.0
    assert 0.7 < study.variance_ratio(made, "stratified", 400) < 1.2


def test_the_study_writes_every_cell_and_a_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(study, "PROFILES_PER_SEED", 20)
    monkeypatch.setattr(simulated, "SYNTHETIC_INPUTS", 100)
    save_trace(trace(), tmp_path / "made")
    told: list[study.ProfilingRow] = []
    found = study.run([tmp_path / "made"], 2, tmp_path / "out", observer=told.append)
    rows = list(found.rows)
    assert rows == told
    assert found.cache_ratios == {"made": 1.0}
    with (tmp_path / "out" / "profiling.csv").open(encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    assert list(lines[0]) == [
        "trace",
        "rule",
        "sampling",
        "strata",
        "method",
        "slo_distance",
        "profiles",
        "inputs_mean",
        "seconds_mean",
        "wrong_rate",
        "undecided_rate",
        "variance_ratio",
        "version",
    ]
    cells = {(line["rule"], line["sampling"]): line["method"] for line in lines}
    assert {cell: method for cell, method in cells.items() if method} == {
        ("t-test", "stratified"): "published"
    }
    assert {line["version"] for line in lines} == {version()}
    caches = (tmp_path / "out" / "prefix_cache.csv").read_text(encoding="utf-8").splitlines()
    assert caches == ["trace,seconds_ratio,version", f"made,1.0,{version()}"]
    assert len(lines) == len(rows) == 6 * 2 * len(RULES) * 12
    assert {line["profiles"] for line in lines if line["trace"] == "made"} == {"40"}
    assert "<svg" in (tmp_path / "out" / "profiling.html").read_text(encoding="utf-8")
    picture = (tmp_path / "out" / "profiling.svg").read_text(encoding="utf-8")
    assert "synthetic-strata" in picture


def test_traces_whose_folders_have_one_name_are_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(study, "PROFILES_PER_SEED", 2)
    monkeypatch.setattr(simulated, "synthetic", lambda rng: ())
    folders = [tmp_path / where / "made" for where in ("one", "two")]
    for folder in folders:
        save_trace(trace(), folder)
    found = study.run([*folders, folders[0]], 1, tmp_path / "out")
    assert list(found.cache_ratios) == ["one/made", "two/made"]
    assert {row.trace for row in found.rows} == {"one/made", "two/made"}


def test_a_shared_operator_is_paid_once_with_the_prefix_cache() -> None:
    graph = PipelineGraph(
        name="two",
        operators=(
            OperatorSpec(name="first"),
            OperatorSpec(name="last", after=("first",), knobs=(Knob(name="k", values=(0, 1)),)),
        ),
    )
    seconds = np.tile(np.array([[3.0], [1.0]], np.float32), (2, 1, 4))
    made = Trace(
        graph=graph,
        configurations=np.array([[0], [1]], dtype=np.int16),
        score=np.zeros((2, 4), np.float32),
        latency_s=seconds,
        output_bytes=seconds,
        input_bytes=np.ones(4, np.float32),
        features=np.zeros((4, 0), np.float32),
    )
    assert prefix_cache_ratio(made) == pytest.approx((3 + 1 + 1) / (4 + 4))


@pytest.mark.slow
def test_betting_keeps_its_promise_where_the_t_test_breaks_it() -> None:
    populations = {each.name: each for each in simulated.synthetic(np.random.default_rng(1))}
    rows = [
        row
        for name in ("synthetic-yes-no", "synthetic-rare-failures")
        for row in study.study(populations[name], 1000, distances=(-0.01, 0.01))
    ]
    assert max(row.wrong_rate for row in rows if row.rule.startswith("betting")) <= 0.01
    assert mean(row.wrong_rate for row in rows if row.rule == "t-test") > 0.01


def test_the_rules_of_the_study_are_those_of_production() -> None:
    assert {rule.stopping for rule in RULES.values()} == {*STOPPING, None}
    assert RULES["t-test-from-2"].rule == TTest(minimum=2)
    assert RULES["betting-groups"].grouped
    assert not RULES["betting"].grouped


def test_random_orders_are_those_that_the_product_draws() -> None:
    rng, own = np.random.default_rng(5), np.random.default_rng(5)
    drawn = orders(population(), "random", 3, rng)
    assert np.array_equal(drawn, [sampling_of("random")(None, 60, own).order for _ in range(3)])
