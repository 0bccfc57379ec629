from __future__ import annotations

import re
from math import nan
from xml.etree import ElementTree

import pytest

from circinus.studies.scheduling.gap import Line, picture

_SVG = "{http://www.w3.org/2000/svg}"


def line(policy: str, queries: int, mean: float, seconds: float = 0.1) -> Line:
    return Line(
        policy=policy, queries=queries, problems=1, proven=1, mean_ratio=mean,
        worst_ratio=mean, served=1.0, seconds=seconds, cpu_seconds=seconds,
    )  # fmt: skip


def drawn(lines: list[Line]) -> ElementTree.Element:
    return ElementTree.fromstring(picture(lines, "goodput"))


def labels(svg: ElementTree.Element) -> list[str]:
    return ["".join(text.itertext()) for text in svg.iter(f"{_SVG}text")]


def curves(svg: ElementTree.Element) -> list[list[tuple[float, float]]]:
    """The points of each curve, panel by panel."""
    return [
        [(float(x), float(y)) for x, y in re.findall(r"([\d.]+),([\d.]+)", c.attrib["points"])]
        for c in svg.iter(f"{_SVG}polyline")
    ]


def test_nothing_run_is_a_picture_all_the_same() -> None:
    assert not curves(drawn([]))


def test_a_cost_that_does_not_serve_all_is_left_out_of_its_panel_only() -> None:
    distance, seconds = curves(drawn([line("greedy", 10, nan), line("greedy", 100, 1.5)]))
    assert (len(distance), len(seconds)) == (1, 2)


def test_whoever_is_farther_from_the_bound_is_drawn_higher_above_or_below_it() -> None:
    found = curves(drawn([line("a", 10, 0.5), line("b", 10, 1.01), line("c", 10, 0.9999)]))
    a, b, c = (points[0][1] for points in found[:3])
    assert a < b < c  # y grows downwards
    assert b - a == pytest.approx((c - b) * 0.85, rel=0.01)  # 50 %, 1 %, 0.01 %: logarithms


def test_the_optimum_sits_on_the_lowest_line_which_says_that_it_is_a_floor() -> None:
    svg = drawn([line("ilp", 10, 1.0), line("greedy", 10, 0.9)])
    assert "≤ 0.001" in labels(svg)
    lowest = max(y for points in curves(svg)[:2] for _, y in points)
    assert curves(svg)[0][0][1] == lowest


def test_sizes_that_were_run_are_told_unless_they_touch() -> None:
    told = labels(drawn([line("a", n, 0.9) for n in (10, 11, 100, 2000)]))
    assert {"10", "100", "2,000"} <= set(told)
    assert "11" not in told


def test_names_are_text_not_markup() -> None:
    assert "a<b" in labels(drawn([line("a<b", 10, 0.9)]))
