"""A rectangle with two axes that points are drawn into."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil, floor, isfinite, log10

from circinus.api.drawing.svg import element, words

RULE = {"class_": "rule", "stroke": "currentColor", "stroke_opacity": 0.16}
BOUND = {"class_": "slo", "stroke": "#b3579a", "stroke_width": 1.5, "stroke_dasharray": "6 4"}
"""How lines of a grid and bounds of objectives look."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """The values along one side of a plot."""

    label: str  # what it measures, with its unit
    low: float  # the value at its beginning
    high: float  # that at its end, `> low`
    ticks: Sequence[tuple[float, str]]  # values that are labelled, and how, in rising order

    def part(self, value: float) -> float:
        """Return where a value stands: 0 at the beginning, 1 at the end."""
        return (value - self.low) / (self.high - self.low)


def linear(values: Iterable[float], label: str, *, zero: bool = True) -> Axis:
    """Return an axis over finite values and, if `zero`, 0; ticks are at 1, 2 or 5 x 10^n."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class PlotArea:
    """Where values are drawn."""

    across: Axis
    up: Axis
    left: float  # of what is within the axes, pixels, as all of these
    top: float
    width: float
    height: float
    labelled: bool = True  # whether the axis across has figures and a name

    def x(self, value: float) -> float:
        """Return where a value is; what is beyond the axis is at its end."""
        return self.left + self.width * min(max(self.across.part(value), 0.0), 1.0)

    def y(self, value: float) -> float:
        """Return where a value is; what is beyond the axis is at its end."""
        return self.top + self.height * (1 - min(max(self.up.part(value), 0.0), 1.0))

    def frame(self) -> Iterator[str]:
        """Yield axes, ticks and names."""
        right, bottom = self.left + self.width, self.top + self.height
        for value, text in self.up.ticks:
            y = self.y(value)
            yield element("line", x1=self.left, x2=right, y1=y, y2=y, **RULE)
            yield words(text, self.left - 7, y + 4, text_anchor="end", font_size=11)
        for value, text in self.across.ticks:
            x = self.x(value)
            yield element("line", x1=x, x2=x, y1=self.top, y2=bottom, **RULE)
            if self.labelled:
                yield words(text, x, bottom + 16, text_anchor="middle", font_size=11)
        yield words(self.up.label, self.left, self.top - 9, font_weight=600)
        if self.labelled:
            yield words(self.across.label, right, bottom + 34, text_anchor="end", font_weight=600)

    def line(
        self, points: Iterable[tuple[float, float]], colour: str, *, dashes: str = ""
    ) -> Iterator[str]:
        """Yield a line through points, from left to right."""
        path = " ".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in points)
        look = {"fill": "none", "stroke": colour, "stroke_width": 2}
        yield element("polyline", points=path, stroke_dasharray=dashes or None, **look)

    def dots(self, points: Iterable[tuple[float, float]], colour: str) -> Iterator[str]:
        """Yield a dot at each of the points."""
        for x, y in points:
            yield element("circle", cx=self.x(x), cy=self.y(y), r=2.5, fill=colour)

    def level(self, value: float, text: str) -> Iterator[str]:
        """Yield a bound that points above it meet."""
        y = self.y(value)
        yield element("line", x1=self.left, x2=self.left + self.width, y1=y, y2=y, **BOUND)
        yield words(text, self.left + self.width - 4, y - 5, text_anchor="end", font_size=11)

    def wall(self, value: float, text: str) -> Iterator[str]:
        """Yield a bound that points left of it meet."""
        x, near = self.x(value), self.across.part(value) > 0.5
        yield element("line", x1=x, x2=x, y1=self.top, y2=self.top + self.height, **BOUND)
        anchor, shift = ("end", -5) if near else ("start", 5)
        yield words(text, x + shift, self.top + 12, text_anchor=anchor, font_size=11)
