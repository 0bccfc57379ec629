"""A breaking point: latency and served requests against arrivals, and where that ends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import isfinite

from circinus.api.drawing.plot import PlotArea, linear
from circinus.api.drawing.svg import COLOURS, drawing, element, words
from circinus.api.schemas.routes import BreakingPointView

_SIZE = (600, 560)
_BLUE, _RED, _GREEN, *_, _GREY = COLOURS
_LEGEND = (
    *(("p50", _BLUE, ""), ("p95", _RED, ""), ("allowed", _RED, "6 4"), ("served", _GREEN, "")),
    *(("all that come", _GREY, "2 4"), ("breaking point, 95 % interval", _GREY, "")),
)


def ramp_chart(ramp: BreakingPointView) -> str:
    """Return it as SVG: two panels, one below the other."""
    steps, rates = ramp.steps, [step.per_s for step in ramp.steps]
    p50 = [(s.per_s, s.p50_s * 1e3) for s in steps if s.p50_s is not None]
    p95 = [(s.per_s, s.p95_s * 1e3) for s in steps if s.p95_s is not None]
    served = [(s.per_s, s.served_per_s) for s in steps]
    allowed = [] if ramp.latency_s is None else [ramp.latency_s * 1e3]
    slowest = [y for _, y in (*p50, *p95) if isfinite(y)]
    # Values far beyond the bound do not stretch the axis.
    visible = [min(y, 5 * allowed[0]) for y in slowest] if allowed else slowest
    across = linear(rates, "requests/s that come")
    late = PlotArea(
        across=across, up=linear([*visible, *allowed], "latency, ms"),
        left=66, top=64, width=510, height=170, labelled=False,
    )  # fmt: skip
    up = linear([*rates, *(y for _, y in served)], "requests/s served")
    all_served = PlotArea(across=across, up=up, left=66, top=284, width=510, height=170)
    parts = [words(f"{ramp.unit}: {_figures(ramp)}", 66, 24, font_weight=600)]
    for panel in (late, all_served):
        parts += [*panel.frame(), *_interval(panel, ramp)]
    ends = (across.low, across.high)
    for bound in allowed:
        parts += late.line([(x, bound) for x in ends], _RED, dashes="6 4")
    parts += _measured(late, p50, _BLUE)
    parts += _measured(late, p95, _RED)
    parts += all_served.line([(0.0, 0.0), (max(rates), max(rates))], _GREY, dashes="2 4")
    parts += _measured(all_served, served, _GREEN)
    parts += _legend()
    return drawing(f"Breaking point of {ramp.unit}", _figures(ramp), _SIZE, parts)


def _figures(ramp: BreakingPointView) -> str:
    high = "" if ramp.high_per_s is None else f"{ramp.high_per_s:.4g}"
    return f"{ramp.per_s:.4g}/s ({ramp.low_per_s:.4g} to {high or 'more'})"


def _interval(panel: PlotArea, ramp: BreakingPointView) -> Iterator[str]:
    """Yield the breaking point as an upright line within its interval."""
    across, up = panel.across, panel.up
    high = across.high if ramp.high_per_s is None else ramp.high_per_s
    left, right = panel.x(ramp.low_per_s), panel.x(high)
    size = {"width": right - left, "height": panel.height}
    yield element("rect", x=left, y=panel.top, **size, fill=_GREY, fill_opacity=0.15)
    yield from panel.line([(ramp.per_s, up.low), (ramp.per_s, up.high)], _GREY)


def _measured(
    panel: PlotArea, points: Iterable[tuple[float, float]], colour: str
) -> Iterator[str]:
    known = [*points]
    yield from panel.line(known, colour)
    yield from panel.dots(known, colour)


def _legend() -> Iterator[str]:
    for i, (name, colour, dashes) in enumerate(_LEGEND):
        x, y = 66 + i % 4 * 130, 516 + i // 4 * 20
        look = {"stroke": colour, "stroke_width": 2, "stroke_dasharray": dashes or None}
        yield element("line", x1=x, x2=x + 24, y1=y - 4, y2=y - 4, **look)
        yield words(name, x + 30, y)
