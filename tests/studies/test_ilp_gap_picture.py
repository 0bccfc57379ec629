from __future__ import annotations

from math import nan

import numpy as np
import pytest
from matplotlib.axes import Axes

from circinus.studies.report.charts import svg
from circinus.studies.scheduling.gap import Line, picture


def line(policy: str, queries: int, mean: float, seconds: float = 0.1) -> Line:
    return Line(
        policy=policy, queries=queries, problems=1, proven=1, mean_ratio=mean,
        worst_ratio=mean, served=1.0, seconds=seconds, cpu_seconds=seconds,
    )  # fmt: skip


def drawn(lines: list[Line]) -> list[Axes]:
    return picture(lines, "goodput").axes


def curves(axes: Axes) -> dict[str, list[float]]:
    """Return the heights of each policy's curve."""
    return {
        str(line.get_label()): np.asarray(line.get_ydata(), float).tolist()
        for line in axes.get_lines()
    }


def labels(axes: Axes) -> list[str]:
    return [tick.get_text() for tick in axes.get_xticklabels()]


def test_nothing_run_is_a_picture_all_the_same() -> None:
    assert [curves(axes) for axes in drawn([])] == [{}, {}]
    assert svg(picture([], "goodput")).startswith("<svg")


def test_a_cost_that_does_not_serve_all_is_left_out_of_its_panel_only() -> None:
    distance, seconds = drawn([line("greedy", 10, nan), line("greedy", 100, 1.5)])
    assert curves(distance) == {"greedy": pytest.approx([50])}
    assert curves(seconds) == {"greedy": [0.1, 0.1]}


def test_whoever_is_farther_from_the_bound_is_drawn_higher_above_or_below_it() -> None:
    distance, _ = drawn([line("a", 10, 0.5), line("b", 10, 1.01), line("c", 10, 0.9999)])
    heights = {"a": [50.0], "b": [1.0], "c": [0.01]}
    assert curves(distance) == {name: pytest.approx(y) for name, y in heights.items()}
    assert (distance.get_xscale(), distance.get_yscale()) == ("log", "log")


def test_the_optimum_sits_on_the_floor_whose_tick_says_so() -> None:
    lines = [line("ilp", 10, 1.0), line("greedy", 10, 0.9)]
    assert curves(drawn(lines)[0])["ilp"] == [0.001]
    assert "≤ 0.001" in svg(picture(lines, "goodput"))


def test_sizes_that_were_run_are_labelled_unless_they_touch() -> None:
    sizes = labels(drawn([line("a", n, 0.9) for n in (10, 11, 100, 2000)])[0])
    assert sizes == ["10", "100", "2,000"]


def test_names_are_text_not_markup() -> None:
    assert "a&lt;b" in svg(picture([line("a<b", 10, 0.9)], "goodput"))
