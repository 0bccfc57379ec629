"""The one writer of charts and pages: what is drawn of data, and text that stays text."""

from __future__ import annotations

from dataclasses import replace
from math import nan
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from circinus.pipelines.errors import InvalidInput
from circinus.studies.planning.report import pictures
from circinus.studies.planning.study import PlanningRow
from circinus.studies.report.charts import Bar, bars, panels, svg
from circinus.studies.report.pages import grid, heading, page, paragraph
from circinus.studies.scheduling.gap import Line, picture
from circinus.studies.scheduling.problems import read_problem
from tests.studies.planning_rows import ROW


def words(text: str) -> list[str]:
    root = ElementTree.fromstring(text)
    return [each.text or "" for each in root.iter("{http://www.w3.org/2000/svg}text")]


def test_a_name_is_in_the_legend_once_and_the_legend_grows() -> None:
    figure, [[left, right]] = panels(1, 2, width=4, height=3)
    for axes in (left, right):
        for i in range(9):
            axes.plot([0, 1], [0, i], label=f"a long name {i}")
    drawn = words(svg(figure))
    assert [drawn.count(f"a long name {i}") for i in range(9)] == [1] * 9


def test_bars_are_as_long_as_their_values_with_notes_marks_and_a_reference() -> None:
    rows = [
        Bar(name="a<b", value=1.0, error=2.0, note="one", mark=0.5),
        Bar(name="c", value=2.0, error=0, note="two"),
    ]
    figure = bars("t", rows, reference=("oracle", 4.0))
    (axes,) = figure.axes
    lengths = [bar.get_width() for bar in axes.patches if isinstance(bar, Rectangle)]
    assert lengths == pytest.approx([1.0, 2.0])
    assert {"a<b", "c", "one", "two", "oracle", "t"} <= set(words(svg(figure)))
    assert axes.get_xlim()[0] <= 0  # a whisker ends at 0


def test_no_bars_are_a_picture_all_the_same() -> None:
    assert "nothing" in words(svg(bars("nothing", [])))


def test_equal_rows_give_equal_files() -> None:
    rows = [Bar(name="a", value=1.0, error=0.1, note="1")]
    assert svg(bars("t", rows)) == svg(bars("t", rows))


def test_a_page_escapes_what_is_told_and_keeps_markup() -> None:
    made = page("a<b", heading("c<d"), paragraph("e<f"), "<svg/>", grid(("x<y",), [("1<2",)]))
    assert made.startswith("<!doctype html>")
    for told in ("a&lt;b", "<h2>c&lt;d</h2>", "<p>e&lt;f</p>", "<svg/>", "<th>x&lt;y</th>"):
        assert told in made
    assert "<td>1&lt;2</td>" in made


def _row(strategy: str, seconds: float, *, slo: str = "easy", history: int = 0) -> PlanningRow:
    return replace(
        ROW,
        trace="t",
        method=strategy,
        slo=slo,
        history=history,
        profiling_seconds=seconds,
        first_answer_true=seconds < 2,
        response_seconds=seconds,
    )


def test_no_rows_give_no_picture() -> None:
    assert pictures([]) == {}


def test_there_is_a_picture_per_level_with_a_bar_per_strategy_as_long_as_its_mean() -> None:
    rows = [_row("a<b", 1.0), _row("a<b", 3.0), _row("c", 4.0), _row("c", 1.0, slo="hard")]
    drawn = pictures(rows)
    assert set(drawn) == {"planning-t-easy.svg", "planning-t-hard.svg"}
    (axes,) = drawn["planning-t-easy.svg"].axes
    widths = [bar.get_width() for bar in axes.patches if isinstance(bar, Rectangle)]
    assert widths == pytest.approx([2.0, 4.0])
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a<b", "c"]
    assert "2.000 s, 50% true, 2 runs" in [text.get_text() for text in axes.texts]


def test_runs_with_history_have_a_bar_of_their_own() -> None:
    drawn = pictures([_row("a", 1.0), _row("a", 0.5, history=10)])["planning-t-easy.svg"]
    assert ">a, 10 earlier<" in svg(drawn)


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


def test_a_file_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"problem must be a readable file \(No such file"):
        read_problem(tmp_path / "none.json")


@pytest.mark.parametrize("text", ["tiers: []", "[" * 100_000, "\xff"])
def test_a_file_must_be_json(tmp_path: Path, text: str) -> None:
    path = tmp_path / "problem.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(InvalidInput, match="problem must be JSON"):
        read_problem(path)


def test_a_problem_is_read(tmp_path: Path) -> None:
    path = tmp_path / "problem.json"
    path.write_text('{"tiers": [{"name": "cloud", "machines": 2}], "queries": []}')
    assert read_problem(path).tiers[0].machines == 2
