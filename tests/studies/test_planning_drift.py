"""Planning again after a drift, beside planning from nothing."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.io.trace import Trace, save_trace
from circinus.pipelines.model.configuration import ConfigurationSpace
from circinus.pipelines.model.infrastructure import Infrastructure, Link
from circinus.pipelines.model.tiers import Tier
from circinus.studies.planning.drift import (
    WEAK_DEVICE,
    DriftCell,
    DriftKind,
    DriftOutcome,
    DriftRow,
    DriftStudy,
    results,
    run,
    summary,
    with_harder_inputs,
    with_other_inputs,
    with_thinner_link,
)
from circinus.studies.planning.splitting import halves_by_feature
from circinus.studies.report.tables import markdown
from tests.oracles.synthetic import chain

INPUTS = 40
TIERS = Infrastructure(
    name="two",
    tiers=(
        Tier(name="device", speed_factor=0.02, dedicated=True),
        Tier(name="cloud", price_usd_per_hour=1.0),
    ),
    links=(Link(between=("device", "cloud"), bandwidth_bytes_per_s=1e6, delay_s=0.001),),
)


def _trace(*, worse: float = 0.0, noise: float = 0.05) -> Trace:
    """Return a chain whose first knob buys accuracy and bytes handed on, its second accuracy.

    Feature 0 says nothing; where feature 1 is high, scores are lower by `worse`.
    """
    graph = chain(3, 4)
    space = ConfigurationSpace(graph)
    knobs = space.indices(list(range(space.size)))
    rng = np.random.default_rng(0)
    hard = rng.permutation(INPUTS) % 2
    accuracy = 0.4 + 0.12 * knobs[:, 0] + 0.08 * knobs[:, 1]
    score = accuracy[:, None] - worse * hard + noise * rng.standard_normal((12, INPUTS))
    seconds = np.stack([np.full(12, 0.0005), 0.01 * (1 + knobs[:, 1])], axis=1)
    handed_on = np.stack([4_000.0 * (1 + knobs[:, 0]), np.full(12, 10.0)], axis=1)
    return Trace(
        graph=graph,
        configurations=knobs.astype(np.int16),
        score=np.clip(score, 0, 1).astype(np.float32),
        latency_s=np.repeat(seconds[:, :, None], INPUTS, axis=2).astype(np.float32),
        output_bytes=np.repeat(handed_on[:, :, None], INPUTS, axis=2).astype(np.float32),
        input_bytes=np.full(INPUTS, 60_000.0, np.float32),
        features=np.stack([rng.random(INPUTS), hard], axis=1).astype(np.float32),
    )


def _study(folder: Path, kind: DriftKind, trace: Trace, **others: object) -> DriftStudy:
    save_trace(trace, folder / "trace")
    study = DriftStudy(
        traces=(folder / "trace",), kind=kind, seeds=1, infrastructure=TIERS, before_s=0.8
    )
    return replace(study, **others)  # type: ignore[arg-type]


@pytest.mark.parametrize("left", [0.0, 1.0, -0.5, float("nan")])
def test_a_link_must_keep_a_part_of_its_bandwidth(left: float) -> None:
    with pytest.raises(InvalidInput, match=r"drift\.left must be in \(0, 1\)"):
        DriftStudy(traces=(), kind=DriftKind.LATENCY, left=left)


@pytest.mark.parametrize("field", ["budget_s", "before_s"])
def test_budgets_must_be_positive(field: str) -> None:
    with pytest.raises(InvalidInput, match=f"drift.{field} must be finite and > 0"):
        DriftStudy(traces=(), kind=DriftKind.LATENCY, **{field: 0.0})  # type: ignore[arg-type]


def test_a_link_that_is_not_there_is_refused() -> None:
    rule = "link must be among device - mec, mec - cloud, got 'device - moon'"
    with pytest.raises(InvalidInput, match=rule):
        with_thinner_link(_trace(), None, ("device", "moon"), 0.5)


def test_without_links_none_can_drift() -> None:
    alone = Infrastructure(name="one", tiers=(Tier(name="cloud"),))
    with pytest.raises(InvalidInput, match=r"infrastructure\.links must hold one to drift"):
        with_thinner_link(_trace(), alone, None, 0.5)


def test_inputs_without_features_cannot_be_split() -> None:
    bare = replace(_trace(), features=np.zeros((INPUTS, 0), np.float32))
    with pytest.raises(InvalidInput, match=r"trace\.features must hold one to split inputs by"):
        with_harder_inputs(bare, None)


def test_inputs_of_another_pipeline_are_refused() -> None:
    other = replace(_trace(), graph=replace(_trace().graph, name="other"))
    with pytest.raises(InvalidInput, match="after must be of the same pipeline, got 'other'"):
        with_other_inputs(_trace(), other, None)


def test_inputs_of_other_configurations_are_refused() -> None:
    trace = _trace()
    fewer = replace(
        trace,
        configurations=trace.configurations[:4],
        score=trace.score[:4],
        latency_s=trace.latency_s[:4],
        output_bytes=trace.output_bytes[:4],
    )
    with pytest.raises(InvalidInput, match="after must hold the configurations of the other"):
        with_other_inputs(trace, fewer, None)


@pytest.mark.parametrize(
    ("kind", "traces"), [(DriftKind.LATENCY, 1), (DriftKind.ACCURACY, 0), (DriftKind.ACCURACY, 2)]
)
def test_a_trace_after_goes_with_one_before_and_with_accuracy(
    kind: DriftKind, traces: int
) -> None:
    with pytest.raises(InvalidInput, match=r"drift\.after must go with one trace and a drift of"):
        DriftStudy(traces=(Path("before"),) * traces, kind=kind, after=Path("after"))


def test_a_plan_that_outlives_the_drift_is_not_counted(tmp_path: Path) -> None:
    study = _study(tmp_path, DriftKind.LATENCY, _trace(), left=0.999)
    rows = list(results(study))
    outcomes = {row.outcome for row in rows}
    assert DriftOutcome.HOLDS in outcomes
    assert outcomes <= {DriftOutcome.HOLDS, DriftOutcome.UNPLANNED}
    assert all(row.cold_seconds is None and row.replanned_seconds is None for row in rows)
    assert summary(rows)[0].counted == 0
    assert summary(rows)[0].ratio is None


def test_a_drift_that_no_plan_outlives_is_not_counted(tmp_path: Path) -> None:
    rows = list(results(_study(tmp_path, DriftKind.LATENCY, _trace(), left=1e-6)))
    # Plans on the device alone would do, were it not so slow.
    outcomes = {row.outcome for row in rows}
    assert DriftOutcome.IMPOSSIBLE in outcomes
    assert DriftOutcome.COUNTED not in outcomes
    assert all(row.oracle_seconds is None for row in rows)


def test_the_harder_half_of_the_inputs_comes_after(tmp_path: Path) -> None:
    trace = _trace(worse=0.2)
    easier, harder, change = halves_by_feature(trace)
    assert change == "feature 1 from below to above its median"
    assert sorted([*easier, *harder]) == list(range(INPUTS))
    assert trace.features[easier, 1].max() < trace.features[harder, 1].min()
    mirrored = replace(trace, features=-trace.features)
    again = halves_by_feature(mirrored)
    assert again[2] == "feature 1 from above to below its median"
    assert trace.features[again[0], 1].max() < trace.features[again[1], 1].min()


def test_a_thinner_link_is_the_only_change_of_a_latency_drift() -> None:
    scenario = with_thinner_link(_trace(), None, ("cloud", "mec"), 0.5)
    before, after = scenario.before.infrastructure, scenario.after.infrastructure
    assert before == WEAK_DEVICE
    assert after.links[0] == before.links[0]
    assert after.links[1].bandwidth_bytes_per_s == 0.5 * before.links[1].bandwidth_bytes_per_s
    assert after.tiers == before.tiers
    assert scenario.change == "mec - cloud at 0.5 of its bandwidth"


def test_after_a_latency_drift_what_was_measured_is_not_paid_again(tmp_path: Path) -> None:
    study = _study(tmp_path, DriftKind.LATENCY, _trace(), left=0.6)
    rows = _counted(run(study, tmp_path / "out"))
    assert rows
    for row in rows:
        assert row.cold_seconds is not None
        assert row.replanned_seconds is not None
        assert row.replanned_found
        assert row.replanned_seconds < row.cold_seconds
        assert row.replanned_seconds == 0.0 or not (row.at_once and row.first_answer_true)
    with (tmp_path / "out" / "drift.csv").open() as file:
        read = list(csv.DictReader(file))
    assert [row["outcome"] for row in read].count("counted") == len(rows)


def test_after_an_accuracy_drift_new_inputs_are_measured(tmp_path: Path) -> None:
    trace = _trace(worse=0.12)
    rows = _counted(results(_study(tmp_path, DriftKind.ACCURACY, trace, infrastructure=None)))
    assert rows
    for row in rows:
        # What other inputs scored proves nothing: no answer without a measurement.
        assert row.at_once is False
        assert row.replanned_found
        assert row.replanned_seconds is not None
        assert row.replanned_seconds > 0
        assert row.oracle_seconds is not None


def test_after_a_drift_to_another_trace_its_inputs_are_measured(tmp_path: Path) -> None:
    dark = _trace()
    dark = replace(dark, score=np.maximum(dark.score - 0.15, 0))
    save_trace(dark, tmp_path / "after")
    study = _study(tmp_path, DriftKind.ACCURACY, _trace(), infrastructure=None)
    rows = list(results(replace(study, after=tmp_path / "after")))
    assert {row.change for row in rows} == {f"{INPUTS} inputs of another trace"}
    assert _counted(rows)
    assert all(row.replanned_seconds and row.replanned_found for row in _counted(rows))


def test_every_method_plans_before_and_after_the_drift_by_itself(tmp_path: Path) -> None:
    methods = ("default", "published", "random_tuned")
    study = _study(tmp_path, DriftKind.LATENCY, _trace(), left=0.6, methods=methods)
    rows = list(results(study))
    assert [row.method for row in rows] == sorted((row.method for row in rows), key=methods.index)
    assert {row.method for row in rows} == set(methods)
    assert [cell.method for cell in summary(rows)] == list(methods)
    alone = list(results(replace(study, methods=("random_tuned",))))
    assert alone == [row for row in rows if row.method == "random_tuned"]


def test_a_method_that_is_unknown_is_refused() -> None:
    with pytest.raises(InvalidInput, match="method must be among default, published"):
        DriftStudy(traces=(), kind=DriftKind.LATENCY, methods=("guess",))


def test_the_same_seed_gives_the_same_row(tmp_path: Path) -> None:
    study = _study(
        tmp_path, DriftKind.ACCURACY, _trace(worse=0.12), infrastructure=None, history=1
    )
    first, again = (next(iter(results(study))) for _ in range(2))
    assert first == again


def test_the_ratio_is_of_what_is_above_the_oracle() -> None:
    rows = [
        _row(oracle_seconds=1.0, cold_seconds=5.0, replanned_seconds=2.0),
        _row(oracle_seconds=1.0, cold_seconds=3.0, replanned_seconds=0.0),
        _row(outcome=DriftOutcome.HOLDS.value),
        _row(outcome=DriftOutcome.IMPOSSIBLE.value),
        _row(outcome=DriftOutcome.UNPLANNED.value),
    ]
    (cell,) = summary(rows)
    assert (cell.runs, cell.counted) == (5, 2)
    assert (cell.holds, cell.impossible, cell.unplanned) == (1, 1, 1)
    assert cell.ratio == pytest.approx((1.0 - 1.0) / (4.0 - 1.0))
    assert (cell.oracle_s, cell.cold_s, cell.replanned_s, cell.error) == (1.0, 4.0, 1.0, 1.0)
    assert "| counted |" in markdown([cell], DriftCell)


def _counted(rows: Iterable[DriftRow]) -> list[DriftRow]:
    return [row for row in rows if row.outcome == DriftOutcome.COUNTED]


def _row(**others: object) -> DriftRow:
    row = DriftRow(
        trace="t",
        drift="latency",
        change="c",
        method="default",
        slo="medium",
        seed=0,
        accuracy_slo=0.5,
        latency_slo_s=1.0,
        outcome=DriftOutcome.COUNTED.value,
        known=3,
        before_seconds=1.0,
    )
    return replace(row, **others)  # type: ignore[arg-type]
