from __future__ import annotations

from xml.etree import ElementTree

import numpy as np
import pytest

from circinus.pipelines.io.trace import Trace
from circinus.pipelines.model.graph import PipelineGraph
from circinus.pipelines.model.operators import Knob, OperatorSpec
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
