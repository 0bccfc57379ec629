"""A breaking point: latency and what is served against what comes, and where that ends."""

from __future__ import annotations

from math import isfinite

from circinus.api.schemas.routes import BreakingPointView
from circinus.studies.report.charts import COLOURS, Axis, Panel, Point, Series, chart, linear

_BLUE, _RED, _GREEN, *_, _GREY = COLOURS


def ramp_chart(found: BreakingPointView) -> str:
    """Return it as SVG: two panels, one below the other."""
    steps, rates = found.steps, [step.per_s for step in found.steps]
    across = linear(rates, "requests/s that come")
    p50 = [(s.per_s, s.p50_s * 1e3) for s in steps if s.p50_s is not None]
    p95 = [(s.per_s, s.p95_s * 1e3) for s in steps if s.p95_s is not None]
    served = [(s.per_s, s.served_per_s) for s in steps]
    allowed = [] if found.latency_s is None else [found.latency_s * 1e3]
    slowest = [y for _, y in (*p50, *p95) if isfinite(y)]
    # Of what is far beyond what is allowed nobody needs to know how far.
    shown = [min(y, 5 * allowed[0]) for y in slowest] if allowed else slowest
    late = linear([*shown, *allowed], "latency, ms")
    panels = [
        Panel(
            title=f"{found.unit}: {_told(found)}",
            x=across,
            y=late,
            series=[
                *_marks(found, across, late),
                *[_limit(each, across) for each in allowed],
                Series(points=_within(p50, late), colour=_BLUE, name="p50", radius=2.5),
                Series(points=_within(p95, late), colour=_RED, name="p95", radius=2.5),
            ],
        )
    ]
    up = linear([*rates, *(y for _, y in served)], "requests/s served")
    ends = [(0.0, 0.0), (max(rates), max(rates))]
    panels.append(
        Panel(
            title="Served",
            x=across,
            y=up,
            series=[
                *_marks(found, across, up),
                Series(points=ends, colour=_GREY, name="all that come", dashes="2 4"),
                Series(points=served, colour=_GREEN, name="served", radius=2.5),
            ],
        )
    )
    return chart(panels, title=f"Breaking point of {found.unit}", width=600)


def _told(found: BreakingPointView) -> str:
    high = "" if found.high_per_s is None else f"{found.high_per_s:.4g}"
    return f"{found.per_s:.4g}/s ({found.low_per_s:.4g} to {high or 'more'})"


def _marks(found: BreakingPointView, across: Axis, up: Axis) -> list[Series]:
    low = max(found.low_per_s, across.low)
    high = across.high if found.high_per_s is None else min(found.high_per_s, across.high)
    end, whole = [(low, up.low), (high, up.low)], [(up.low, up.high)] * 2
    line = [(found.per_s, up.low), (found.per_s, up.high)]
    return [
        Series(points=end, colour=_GREY, line=False, band=whole),
        Series(points=line, colour=_GREY, name="breaking point, 95 % interval"),
    ]


def _limit(allowed_ms: float, across: Axis) -> Series:
    ends = [(across.low, allowed_ms), (across.high, allowed_ms)]
    return Series(points=ends, colour=_RED, name="allowed", dashes="6 4")


def _within(points: list[Point], up: Axis) -> list[Point]:
    return [(x, min(y, up.high)) for x, y in points]
