"""The one writer of charts and pages: what is drawn of data, and text that stays text."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from matplotlib.patches import Rectangle

from circinus.studies.report.charts import Bar, bars, panels, svg
from circinus.studies.report.pages import grid, heading, page, paragraph


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
