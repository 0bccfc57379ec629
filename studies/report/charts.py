"""Charts as SVG, the same hand for all studies.

One rule: lines and words take the colour of the text around them, and colours of data stand out
on white and on black alike, so a chart is read in a light page and in a dark one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from math import ceil, floor, isfinite, log10

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#b3579a", "#b8860b", "#2aa1d8", "#7f7f7f")
"""Told apart by the colour-blind as well (after Okabe and Ito)."""

_LEFT, _RIGHT, _TOP, _BOTTOM = 66, 20, 30, 44  # of a panel, around its axes
_LETTER = 7.0  # pixels of an average one, at most
_ROW, _BAR = 28, 420  # of bars
_STYLE = (
    "<style>.chart{color:#222;font:12px sans-serif}.chart text{fill:currentColor}"
    ".chart .paper{fill:#fff}.chart .rule{stroke:currentColor;stroke-opacity:.15}"
    "@media(prefers-color-scheme:dark){.chart{color:#ddd}.chart .paper{fill:#16181a}}</style>"
)

Point = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """What values stand at along one side of a panel."""

    label: str  # what it measures, with its unit
    low: float  # the value at its beginning
    high: float  # that at its end, `> low`
    ticks: Sequence[tuple[float, str]]  # values that are labelled, and how, in rising order
    warp: Callable[[float], float] = float  # rising; what is spaced evenly along the axis

    def part(self, value: float) -> float:
        """Return where a value stands: 0 at the beginning, 1 at the end."""
        low, high = self.warp(self.low), self.warp(self.high)
        return (self.warp(value) - low) / (high - low)


def linear(values: Iterable[float], label: str, *, zero: bool = True) -> Axis:
    """Return an axis over values and, unless told otherwise, 0; ticks are at 1, 2 or 5 x 10^n."""
    known = [*filter(isfinite, values)]
    if zero or not known:
        known.append(0.0)
    low, high = min(known), max(known)
    rough = (high - low or 1.0) / 5
    decade = 10.0 ** floor(log10(rough))
    step = next(m * decade for m in (1, 2, 5, 10) if m * decade >= rough * (1 - 1e-9))
    first = floor(low / step + 1e-9)
    last = max(ceil(high / step - 1e-9), first + 1)
    ticks = [(i * step, f"{i * step:.6g}") for i in range(first, last + 1)]
    return Axis(label=label, low=first * step, high=last * step, ticks=ticks)


def decades(values: Iterable[float], label: str, *, floor_at: float = 0.0) -> Axis:
    """Return a logarithmic axis over values > 0 that are finite, in whole powers of ten.

    Below `floor_at`, a power of ten, everything is drawn there, as its tick says; 0: none.
    """
    known = [max(value, floor_at) for value in values if isfinite(value)] or [floor_at or 1.0]
    first = floor(log10(min(known)) + 1e-9)
    last = max(ceil(log10(max(known) * 1.01)), first + 1)
    ticks = [
        (10.0**power, ("≤ " if 10.0**power <= floor_at * 1.01 else "") + f"{10.0**power:g}")
        for power in range(first, last + 1)
    ]
    return Axis(label=label, low=10.0**first, high=10.0**last, ticks=ticks, warp=log10)


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Points of one kind."""

    points: Sequence[Point]  # along both axes
    colour: str  # of all that is drawn of it
    name: str = ""  # in the legend; empty: not there
    line: bool = True  # whether a line joins them
    steps: bool = False  # whether that goes right first, then up or down
    dashes: str = ""  # of the line, as in SVG; empty: none
    radius: float = 0.0  # of a dot at each, in pixels; 0: none
    band: Sequence[Point] = ()  # lowest and highest value at each point, drawn behind; empty: none

    @property
    def stroke(self) -> str:
        """How its line is drawn, as attributes in SVG."""
        dashes = f' stroke-dasharray="{self.dashes}"' if self.dashes else ""
        return f'stroke="{self.colour}" stroke-width="2"{dashes}'


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """Series over two axes; later ones are drawn over earlier ones."""

    title: str
    x: Axis
    y: Axis
    series: Sequence[Series]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A bar."""

    name: str  # before it
    value: float  # its length
    error: float  # a whisker of so much to either side
    note: str  # behind it
    mark: float | None = None  # a tick across it; None: none
    colour: str = COLOURS[0]  # of the bar


def chart(
    panels: Sequence[Panel], *, title: str, columns: int = 1, width: int = 480, height: int = 260
) -> str:
    """Return panels of that size in rows of so many, with one legend for all below."""
    drawn = "".join(
        f'<g transform="translate({i % columns * width} {i // columns * height})">'
        f"{_panel(panel, width, height)}</g>"
        for i, panel in enumerate(panels)
    )
    whole, top = width * columns, height * ceil(len(panels) / columns)
    named = {s.name: s for panel in panels for s in panel.series if s.name}
    legend, bottom = _legend(list(named.values()), whole, top)
    return _svg(drawn + legend, title, whole, bottom)


def bars(title: str, rows: Sequence[Bar], *, reference: tuple[str, float] | None = None) -> str:
    """Return a bar per row, and a dashed line across all at a value that has a name."""
    before = 24 + _LETTER * max([len(bar.name) for bar in rows], default=0)
    behind = 24 + _LETTER * max([len(bar.note) for bar in rows], default=0)
    reach = max([bar.value + bar.error for bar in rows], default=0.0)
    scale = _BAR / (max(reach, reference[1] if reference else 0.0) or 1.0)
    height = _TOP + 12 + _ROW * len(rows)
    drawn = [_text(8, 18, title)]
    drawn += [_bar(bar, before, _TOP + 10 + _ROW * i, scale) for i, bar in enumerate(rows)]
    if reference is not None:
        name, x = reference[0], before + reference[1] * scale
        across = f'stroke="{COLOURS[1]}" stroke-dasharray="4 3"'
        drawn += [_line((x, _TOP + 6), (x, height - 4), across), _text(x + 4, _TOP + 6, name)]
    width = max(before + _BAR + behind, 16 + _LETTER * len(title))
    return _svg("".join(drawn), title, width, height)


def _svg(drawn: str, title: str, width: float, height: float) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="chart" role="img" width="{width:g}" '
        f'height="{height:g}" viewBox="0 0 {width:g} {height:g}">{_STYLE}'
        f"<title>{escape(title)}</title>"
        f'<rect class="paper" width="100%" height="100%"/>{drawn}</svg>\n'
    )


def _panel(panel: Panel, width: int, height: int) -> str:
    right, bottom = width - _RIGHT, height - _BOTTOM

    def at(point: Point) -> Point:
        x = _LEFT + (right - _LEFT) * panel.x.part(point[0])
        return x, bottom - (bottom - _TOP) * panel.y.part(point[1])

    drawn, free = [_text(_LEFT, 18, panel.title)], 0.0
    for value, label in panel.y.ticks:
        _, y = at((panel.x.low, value))
        drawn += [_line((_LEFT, y), (right, y)), _text(_LEFT - 6, y + 4, label, "end")]
    for value, label in panel.x.ticks:
        x, _ = at((value, panel.y.low))
        drawn.append(_line((x, _TOP), (x, bottom + 4)))
        half = _LETTER * (len(label) + 1) / 2
        if x - half >= free:  # labels that would touch are left out
            drawn.append(_text(x, bottom + 17, label, "middle"))
            free = x + half
    drawn.append(_text((_LEFT + right) / 2, height - 10, panel.x.label, "middle"))
    if panel.y.label:
        turned = f'transform="translate(14 {(_TOP + bottom) / 2:g}) rotate(-90)"'
        drawn.append(f'<text {turned} text-anchor="middle">{escape(panel.y.label)}</text>')
    drawn += [_series(series, at) for series in panel.series]
    return "".join(drawn)


def _series(series: Series, at: Callable[[Point], Point]) -> str:
    points, drawn = [at(point) for point in series.points], ""
    if series.band:
        ends = list(zip(series.points, series.band, strict=True))
        edge = [at((x, low)) for (x, _), (low, _) in ends]
        edge += [at((x, high)) for (x, _), (_, high) in reversed(ends)]
        drawn += f'<polygon points="{_path(edge)}" fill="{series.colour}" fill-opacity=".15"/>'
    if series.line and points:
        path = points
        if series.steps:
            path = [points[0], *(p for a, b in pairwise(points) for p in ((b[0], a[1]), b))]
        drawn += f'<polyline points="{_path(path)}" fill="none" {series.stroke}/>'
    return drawn + _dots(points, series)


def _dots(points: Iterable[Point], series: Series) -> str:
    if not series.radius:
        return ""
    how = f'r="{series.radius:g}" fill="{series.colour}"'
    how += "" if series.line else ' fill-opacity=".6"'
    return "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" {how}/>' for x, y in points)


def _legend(named: Sequence[Series], width: float, top: float) -> tuple[str, float]:
    """Return names beside a piece of their lines, in rows, and where they end."""
    drawn, x, y = "", float(_LEFT), top + 14
    for series in named:
        needs = 34 + _LETTER * (len(series.name) + 2)
        if x + needs > width and x > _LEFT:
            x, y = float(_LEFT), y + 18
        if series.line:
            drawn += _line((x, y - 4), (x + 24, y - 4), series.stroke)
        drawn += _dots([(x + 12, y - 4)], series) + _text(x + 30, y, series.name)
        x += needs
    return drawn, y + 12 if named else top


def _bar(bar: Bar, start: float, y: float, scale: float) -> str:
    middle, end = y + _ROW / 2, start + bar.value * scale
    low, high = max(end - bar.error * scale, start), end + bar.error * scale
    tick = ""
    if bar.mark is not None:
        x = start + bar.mark * scale
        tick = _line((x, y + 4), (x, y + _ROW - 4), 'stroke="currentColor" stroke-width="2"')
    return (
        _text(start - 8, middle + 4, bar.name, "end")
        + f'<rect x="{start:g}" y="{y + 4:.1f}" width="{bar.value * scale:.1f}" '
        f'height="{_ROW - 8}" fill="{bar.colour}" fill-opacity=".6"/>'
        + _line((low, middle), (high, middle), 'stroke="currentColor"')
        + tick
        + _text(max(high, end) + 6, middle + 4, bar.note)
    )


def _line(start: Point, end: Point, how: str = 'class="rule"') -> str:
    (x1, y1), (x2, y2) = start, end
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" {how}/>'


def _text(x: float, y: float, words: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def _path(points: Iterable[Point]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
