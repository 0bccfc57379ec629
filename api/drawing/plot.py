"""A rectangle with two axes that points are drawn into."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from circinus.api.drawing.svg import element, words
from circinus.studies.report.charts import Axis


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
        rule = {"class_": "rule", "stroke": "currentColor", "stroke_opacity": 0.16}
        for value, text in self.up.ticks:
            y = self.y(value)
            yield element("line", x1=self.left, x2=right, y1=y, y2=y, **rule)
            yield words(text, self.left - 7, y + 4, text_anchor="end", font_size=11)
        for value, text in self.across.ticks:
            x = self.x(value)
            yield element("line", x1=x, x2=x, y1=self.top, y2=bottom, **rule)
            if self.labelled:
                yield words(text, x, bottom + 16, text_anchor="middle", font_size=11)
        yield words(self.up.label, self.left, self.top - 9, font_weight=600)
        if self.labelled:
            yield words(self.across.label, right, bottom + 34, text_anchor="end", font_weight=600)

    def level(self, value: float, text: str) -> Iterator[str]:
        """Yield a bound that what is above it keeps."""
        y = self.y(value)
        yield element("line", x1=self.left, x2=self.left + self.width, y1=y, y2=y, **_BOUND)
        yield words(text, self.left + self.width - 4, y - 5, text_anchor="end", font_size=11)

    def wall(self, value: float, text: str) -> Iterator[str]:
        """Yield a bound that what is left of it keeps."""
        x, near = self.x(value), self.across.part(value) > 0.5
        yield element("line", x1=x, x2=x, y1=self.top, y2=self.top + self.height, **_BOUND)
        anchor, shift = ("end", -5) if near else ("start", 5)
        yield words(text, x + shift, self.top + 12, text_anchor=anchor, font_size=11)


_BOUND = {"class_": "slo", "stroke": "#b3579a", "stroke_width": 1.5, "stroke_dasharray": "6 4"}
