"""The picture of the study of scheduling policies: how far from the bound, and how long.

Both panels are log-log. The good policies are within a percent of the bound, so their distance
to it is drawn, not their ratio: on an axis of ratios they are one line.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, isfinite, log10

from studies.ilp_gap_summary import Line

NEAREST_PERCENT = 0.001
"""Distances below it are drawn there; the axis says so."""
_COLOURS = ("#c0392b", "#1f618d", "#7d6608", "#884ea0", "#27ae60")
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 400, 260, 66, 20, 30, 36
_SHORTEST_S = 1e-4


@dataclass(frozen=True, slots=True)
class _Scale:
    """A logarithmic axis: values from `low` to `high` on pixels from `start` to `end`."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        part = (log10(value) - log10(self.low)) / (log10(self.high / self.low) or 1.0)
        return self.start + part * (self.end - self.start)


def picture(lines: Sequence[Line], objective: str) -> str:
    """Give an SVG: distance to the bound, and seconds, by the number of queries."""
    names = list(dict.fromkeys(line.policy for line in lines))
    panels = [
        _panel(lines, f"{objective}: mean distance to the bound, %", _distance, NEAREST_PERCENT),
        _panel(lines, "mean seconds", lambda line: line.seconds, _SHORTEST_S),
    ]
    legend = "".join(
        f'<text x="{_LEFT + 90 * i}" y="{_HEIGHT + 40}" fill="{_colour(i)}" '
        f'font-weight="bold">{escape(name)}</text>'
        for i, name in enumerate(names)
    )
    drawn = "".join(
        f'<g transform="translate({i * _WIDTH} 0)">{panel}</g>' for i, panel in enumerate(panels)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{2 * _WIDTH}" height="{_HEIGHT + 56}" '
        f'font-family="sans-serif" font-size="12" role="img">'
        f"<title>Scheduling policies: {escape(objective)}</title>"
        f'<rect width="100%" height="100%" fill="white"/>{drawn}{legend}</svg>\n'
    )


def _distance(line: Line) -> float:
    return 100 * abs(1 - line.mean)


def _panel(lines: Sequence[Line], title: str, value: Callable[[Line], float], least: float) -> str:
    """Draw one panel; values below `least` are drawn there, those that are none are left out."""
    points = [
        (line.policy, line.queries, max(value(line), least))
        for line in lines
        if isfinite(value(line)) and line.queries > 0
    ]
    heights = [v for _, _, v in points] or [least]
    up = _Scale(_decade(min(heights), floor), _decade(max(heights) * 1.01, ceil), 0, 0)
    up = _Scale(up.low, max(up.high, 10 * up.low), _HEIGHT - _BOTTOM, _TOP)
    sizes = sorted({n for _, n, _ in points}) or [1]
    across = _Scale(sizes[0], sizes[-1], _LEFT, _WIDTH - _RIGHT)
    curves = [
        _curve([(across.at(n), up.at(v)) for p, n, v in points if p == name], _colour(i))
        for i, name in enumerate(dict.fromkeys(line.policy for line in lines))
    ]
    axes = _heights(up, least) + _sizes(across, sizes)
    return f'<text x="{_LEFT}" y="16">{escape(title)}</text>{axes}{"".join(curves)}'


def _decade(value: float, towards: Callable[[float], int]) -> float:
    return float(10.0 ** towards(log10(value)))


def _curve(points: Sequence[tuple[float, float]], colour: str) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in points)
    return f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{path}"/>{dots}'


def _heights(scale: _Scale, least: float) -> str:
    """Draw a line and a label for each power of ten."""
    drawn = []
    for power in range(round(log10(scale.low)), round(log10(scale.high)) + 1):
        y = scale.at(10.0**power)
        sign = "≤ " if 10.0**power <= least * 1.01 else ""
        drawn.append(
            f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" '
            f'stroke="#ddd"/><text x="{_LEFT - 6}" y="{y + 4:.1f}" '
            f'text-anchor="end">{sign}{10.0**power:g}</text>'
        )
    return "".join(drawn)


def _sizes(scale: _Scale, sizes: Sequence[int]) -> str:
    """Label the sizes that were run, but not where labels would touch."""
    drawn, last = [], 0.0
    for size in sizes:
        x = scale.at(size)
        if x - last >= 34:
            drawn.append(
                f'<text x="{x:.1f}" y="{_HEIGHT - _BOTTOM + 18}" '
                f'text-anchor="middle">{size:,}</text>'
            )
            last = x
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    name = f'<text x="{middle}" y="{_HEIGHT}" text-anchor="middle">queries</text>'
    return "".join(drawn) + name


def _colour(i: int) -> str:
    return _COLOURS[i % len(_COLOURS)]
