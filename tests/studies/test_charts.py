"""The one writer of charts and pages: axes, what is drawn of data, and text that stays text."""

from __future__ import annotations

import re
from math import inf, nan
from xml.etree import ElementTree

import pytest

from circinus.studies.report.charts import (
    Axis,
    Bar,
    Panel,
    Series,
    bars,
    chart,
    decades,
    linear,
)
from circinus.studies.report.pages import grid, heading, page, paragraph

_SVG = "{http://www.w3.org/2000/svg}"
UNIT = Axis(label="unit", low=0.0, high=1.0, ticks=[(0.0, "0"), (1.0, "1")])


def drawn(*series: Series, x: Axis = UNIT) -> ElementTree.Element:
    return ElementTree.fromstring(chart([Panel(title="p", x=x, y=UNIT, series=series)], title="t"))


def labels(svg: ElementTree.Element) -> list[str]:
    return [text.text or "" for text in svg.iter(f"{_SVG}text")]


def points(shape: ElementTree.Element) -> list[tuple[float, float]]:
    found = re.findall(r"(-?[\d.]+),(-?[\d.]+)", shape.attrib["points"])
    return [(float(x), float(y)) for x, y in found]


@pytest.mark.parametrize(
    ("values", "ticks"),
    [
        ([], ["0", "0.2"]),
        ([0.0], ["0", "0.2"]),
        ([3.0, nan, inf], ["0", "1", "2", "3"]),
        ([0.003], ["0", "0.001", "0.002", "0.003"]),
        ([42.0], ["0", "10", "20", "30", "40", "50"]),
        ([-1.0, 1.0], ["-1", "-0.5", "0", "0.5", "1"]),
    ],
)
def test_linear_ticks_are_round_and_hold_all_values_and_nought(
    values: list[float], ticks: list[str]
) -> None:
    axis = linear(values, "seconds")
    assert [label for _, label in axis.ticks] == ticks
    assert (axis.low, axis.high) == (axis.ticks[0][0], axis.ticks[-1][0])


def test_decades_hold_all_values() -> None:
    axis = decades([0.02, 5.0, nan], "s")
    assert [label for _, label in axis.ticks] == ["0.01", "0.1", "1", "10"]
    assert axis.part(0.1) == pytest.approx(1 / 3)
    assert [label for _, label in decades([], "s").ticks] == ["1", "10"]
    assert [label for _, label in decades([1.0], "s").ticks] == ["1", "10"]


def test_what_lies_below_a_floor_is_drawn_there_and_the_tick_says_so() -> None:
    axis = decades([1e-9, 0.5], "%", floor_at=0.01)
    assert [label for _, label in axis.ticks] == ["≤ 0.01", "0.1", "1"]


def test_steps_go_right_before_they_go_up() -> None:
    (line,) = drawn(Series(points=[(0, 0), (1, 1)], colour="red", steps=True)).iter(
        f"{_SVG}polyline"
    )
    start, corner, end = points(line)
    assert corner == (end[0], start[1])
    assert end[1] < start[1]  # y grows downwards


def test_a_band_lies_behind_its_line_between_lowest_and_highest() -> None:
    series = Series(points=[(0, 0.5), (1, 0.5)], colour="red", band=[(0, 1), (0.25, 0.75)])
    svg = drawn(series)
    (band,) = svg.iter(f"{_SVG}polygon")
    low, right_low, right_high, high = points(band)
    assert low[0] == high[0] < right_low[0] == right_high[0]
    assert low[1] > right_low[1] > right_high[1] > high[1]
    shapes = [e.tag.removeprefix(_SVG) for e in svg.iter() if "points" in e.attrib]
    assert shapes == ["polygon", "polyline"]


def test_points_without_a_line_are_dots_only() -> None:
    svg = drawn(Series(points=[(0, 0), (1, 1)], colour="red", line=False, radius=2))
    assert not list(svg.iter(f"{_SVG}polyline"))
    assert len(list(svg.iter(f"{_SVG}circle"))) == 2


def test_labels_that_would_touch_are_left_out() -> None:
    ticks = [(0.0, "nought"), (0.01, "one percent"), (1.0, "all")]
    told = labels(drawn(x=Axis(label="x", low=0.0, high=1.0, ticks=ticks)))
    assert {"nought", "all"} <= set(told)
    assert "one percent" not in told


def test_a_name_is_in_the_legend_once_and_the_picture_grows_with_it() -> None:
    def panels(names: int) -> list[Panel]:
        series = [
            Series(points=[(0, 0)], colour="red", name=f"a long name {i}") for i in range(names)
        ]
        return [Panel(title="p", x=UNIT, y=UNIT, series=series)] * 2

    few, many = (ElementTree.fromstring(chart(panels(n), title="t")) for n in (1, 9))
    assert labels(few).count("a long name 0") == 1
    assert float(few.attrib["height"]) < float(many.attrib["height"])


def test_bars_are_as_long_as_their_values_and_nothing_is_cut_off() -> None:
    rows = [
        Bar(name="a", value=1.0, error=0.5, note="1"),
        Bar(name="b", value=2.0, error=0, note="2"),
    ]
    svg = ElementTree.fromstring(bars("t", rows, reference=("oracle", 4.0)))
    paper, *widths = (e.attrib["width"] for e in svg.iter(f"{_SVG}rect"))
    assert paper == "100%"
    assert float(widths[0]) / float(widths[1]) == pytest.approx(0.5, rel=0.01)
    assert "oracle" in labels(svg)
    right = max(float(line.attrib["x2"]) for line in svg.iter(f"{_SVG}line"))
    assert right < float(svg.attrib["width"])


def test_no_bars_are_a_picture_all_the_same() -> None:
    assert labels(ElementTree.fromstring(bars("nothing", []))) == ["nothing"]


def test_words_take_the_colour_of_the_page_and_stay_text() -> None:
    svg = chart([Panel(title="a<b", x=UNIT, y=UNIT, series=())], title="c&d")
    assert "prefers-color-scheme:dark" in svg
    assert "a<b" in labels(ElementTree.fromstring(svg))
    assert "c&amp;d" in svg


def test_a_page_escapes_what_is_told_and_keeps_markup() -> None:
    made = page("a<b", heading("c<d"), paragraph("e<f"), "<svg/>", grid(("x<y",), [("1<2",)]))
    assert made.startswith("<!doctype html>")
    for told in ("a&lt;b", "<h2>c&lt;d</h2>", "<p>e&lt;f</p>", "<svg/>", "<th>x&lt;y</th>"):
        assert told in made
    assert "<td>1&lt;2</td>" in made
