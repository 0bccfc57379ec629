from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from circinus.deploy.profiling.processes import ForkedPool
from circinus.pipelines.clock import SystemClock
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.io.datasets import Dataset, Example
from circinus.pipelines.io.presets import PRESETS
from circinus.pipelines.io.trace import Trace
from circinus.pipelines.model.graph import PipelineGraph
from circinus.pipelines.model.operators import Knob, Operator, OperatorSpec, Settings
from circinus.pipelines.model.payload import Payload
from circinus.studies.planning.fresh import FreshRow, FreshStudy, run, summary
from circinus.studies.report.charts import svg
from circinus.studies.trace.front import Tradeoff, picture, table, tradeoff

# A source, two branches side by side and what joins them: the longer branch counts.
GRAPH = PipelineGraph(
    name="fan",
    metric="score <&>",
    operators=(
        OperatorSpec(name="source"),
        OperatorSpec(name="left", after=("source",), knobs=(Knob(name="x", values=(1, 2, 3)),)),
        OperatorSpec(name="right", after=("source",)),
        OperatorSpec(name="join", after=("left", "right")),
    ),
)
# Seconds of source, left, right, join by configuration: 1 + max(l, 2) + 1.
SECONDS = [[1.0, 1.0, 2.0, 1.0], [1.0, 4.0, 2.0, 1.0], [1.0, 5.0, 2.0, 1.0]]


@pytest.fixture
def found() -> Tradeoff:
    latency_s = np.repeat(np.array(SECONDS, np.float32)[:, :, None], 2, axis=2)
    trace = Trace(
        graph=GRAPH,
        configurations=np.array([[0], [1], [2]], np.int16),
        score=np.array([[0.2, 0.4], [0.9, np.nan], [0.5, 0.7]], np.float32),
        latency_s=latency_s,
        output_bytes=np.ones((3, 4, 2), np.float32),
        input_bytes=np.ones(2, np.float32),
        features=np.zeros((2, 0), np.float32),
    )
    return tradeoff(trace)


def test_branches_run_side_by_side_and_what_failed_is_left_out(found: Tradeoff) -> None:
    np.testing.assert_allclose(found.latency_s, [4.0, 6.0, 7.0])
    np.testing.assert_allclose(found.accuracy, [0.3, 0.9, 0.6], rtol=1e-6)
    assert found.accuracy_span == pytest.approx(0.6)
    assert found.latency_ratio == pytest.approx(1.75)


def test_a_dominated_configuration_is_not_on_the_front(found: Tradeoff) -> None:
    assert found.front == [0, 1]  # the third is slower and worse than the second


def test_the_table_has_the_front_fastest_first(found: Tradeoff) -> None:
    assert table(found).splitlines() == [
        "| latency, ms | score <&> | left.x |",
        "| --- | --- | --- |",
        "| 4e+03 | 0.300 | 1 |",
        "| 6e+03 | 0.900 | 2 |",
    ]


def test_the_picture_has_a_dot_for_every_configuration(found: Tradeoff) -> None:
    figure = picture(found)
    (axes,) = figure.axes
    (others,) = np.asarray(axes.collections[0].get_offsets())
    assert others == pytest.approx((7000, 0.6))
    front = axes.get_lines()[0]
    assert np.asarray(front.get_xdata()) == pytest.approx([4000, 6000])  # fastest first
    assert np.asarray(front.get_ydata()) == pytest.approx([0.3, 0.9])
    drawn = ElementTree.fromstring(svg(figure))  # well-formed, the name escaped
    assert "mean score <&>" in [*drawn.itertext()]


def _guess(inputs: Payload, knobs: Settings) -> Payload:
    assert isinstance(inputs, float)
    return float(inputs < float(knobs["skill"]))


def _examples(count: int, seed: int) -> Dataset:
    difficulties = np.random.default_rng(seed).random(count).tolist()
    inputs = [Example(input=difficulty, expected=None) for difficulty in difficulties]
    return Dataset(name="guesses", examples=inputs)


def _pipeline(**changed: object) -> Pipeline:
    """One operator that is right on as many inputs as it has skill."""
    knob = Knob(name="skill", values=(0.5, 0.6, 0.7, 0.8, 0.9))
    told = {
        "name": "guessing",
        "operators": (Operator(spec=OperatorSpec(name="guess", knobs=(knob,)), run=_guess),),
        "score": lambda output, expected: output,
        "examples": _examples,
    }
    return Pipeline(**{**told, **changed})  # type: ignore[arg-type]  # fields of it


def _study(pipeline: Pipeline, plans: int) -> FreshStudy:
    return FreshStudy(
        pipelines={"": pipeline},
        opened=lambda _, pipeline: ForkedPool(pipeline, SystemClock()),
        infrastructure=PRESETS["one-tier"],
        accuracies=[0.55, 0.65, 0.75],
        latency_s=1.0,
        plans=plans,
        fresh=2000,
    )


def test_a_pipeline_without_examples_cannot_be_judged(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="must bring examples, as many as are asked for"):
        run(_study(_pipeline(examples=None), 1), tmp_path)


def test_shares_come_with_their_exact_interval() -> None:
    rows = [
        FreshRow(
            pipeline="p",
            seed=i,
            accuracy_slo=0.5,
            holds_for="examples",
            outcome="feasible",
            accuracy_held=i > 0,
        )
        for i in range(40)
    ]
    cells = {(cell.pipeline, cell.share): cell for cell in summary(rows)}
    held = cells["p", "accuracy intervals that hold"]

    assert (held.count, held.value) == (40, 39 / 40)
    # Clopper and Pearson: 39 of 40 at 95 %.
    assert (held.low, held.high) == pytest.approx((0.8684, 0.9994), abs=1e-4)
    assert held.trusted
    assert cells["all", "met of those shown as met"].value is None


@pytest.mark.slow
def test_what_is_announced_on_samples_holds_on_fresh_inputs(tmp_path: Path) -> None:
    rows = run(_study(_pipeline(), 12), tmp_path)

    assert [row.seed for row in rows] == list(range(0, 36, 3))
    judged = [row for row in rows if row.fresh_accuracy is not None]
    assert len(judged) >= 10
    # The skill of every configuration is known: fresh inputs show it to four deviations.
    for row in judged:
        assert row.fresh_accuracy is not None
        assert min(abs(row.fresh_accuracy - skill) for skill in (0.5, 0.6, 0.7, 0.8, 0.9)) < 0.045
    accuracy = next(c for c in summary(rows) if c.share == "accuracy intervals that hold")
    assert accuracy.trusted
    lines = (tmp_path / "fresh.csv").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 13
