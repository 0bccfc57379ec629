"""What happens to one request of a plan: which operator runs where and when, and what travels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from circinus.api.drawing.plot import BOUND, RULE, Axis, linear
from circinus.api.drawing.svg import drawing, element, fitted, of_tier, title, words
from circinus.api.schemas.explanation import ExplanationView
from circinus.api.schemas.plans import PlanView
from circinus.api.text import formats
from circinus.planner.answers.explaining import OperatorPart

_WIDTH, _LEFT, _SPAN, _TOP = 900.0, 120.0, 760.0, 34.0
_ROW, _BAR = 40.0, 26.0
_LEAST = 2.0  # pixels of a bar
_FAR = 4  # times the latency: a bound beyond is not drawn


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bar:
    part: OperatorPart
    tier: int  # in the order in which requests reach them
    row: int  # from the top
    starts_s: float

    @property
    def ends_s(self) -> float:
        return self.starts_s + self.part.seconds

    @property
    def middle(self) -> float:
        return _TOP + self.row * _ROW + _BAR / 2


def timeline_svg(
    plan: PlanView, explanation: ExplanationView, latency_slo_s: float | None = None
) -> str:
    """Return operators as bars on their tiers, by mean seconds, and transfers between them.

    The drawn request meets no other: operators that do not wait for each other run at the same
    time. With an objective its bound is drawn too.
    """
    bars = _bars(explanation.operators)
    ends_s = max((bar.ends_s for bar in bars.values()), default=0.0)
    bound_s = latency_slo_s if latency_slo_s and latency_slo_s < _FAR * ends_s else None
    axis = linear([ends_s, bound_s or 0.0], "")
    bottom = _TOP + _ROW * (1 + max((bar.row for bar in bars.values()), default=0))
    parts = [*_ticks(axis, bottom), *_tiers(bars.values()), *_bound(axis, bound_s, bottom)]
    for bar in bars.values():
        parts += _arrival(axis, bar, [bars[name] for name in bar.part.after])
    for bar in bars.values():
        parts += _drawn(axis, bar)
    description = "; ".join(_bar_title(bar.part) for bar in bars.values())
    return drawing(f"Operators of {plan.id}", description, (_WIDTH, bottom + 40), parts)


def _bars(parts: Sequence[OperatorPart]) -> Mapping[str, _Bar]:
    """Return each operator's bar; on a tier those at the same time are in rows of their own."""
    starts: dict[str, float] = {}
    for part in parts:
        ready = [starts[p.operator] + p.seconds for p in parts if p.operator in part.after]
        starts[part.operator] = max(ready, default=0.0) + part.transfer_s
    bars: dict[str, _Bar] = {}
    first = 0
    for number, tier in enumerate(dict.fromkeys(part.tier for part in parts)):
        free: list[float] = []  # from when on each row of the tier is
        for part in sorted((p for p in parts if p.tier == tier), key=lambda p: starts[p.operator]):
            at = starts[part.operator]
            row = next((i for i, since in enumerate(free) if since <= at + 1e-12), len(free))
            free[row : row + 1] = [at + part.seconds]
            bars[part.operator] = _Bar(part=part, tier=number, row=first + row, starts_s=at)
        first += len(free)
    return {part.operator: bars[part.operator] for part in parts}


def _x(axis: Axis, seconds: float) -> float:
    return _LEFT + _SPAN * axis.part(seconds)


def _ticks(axis: Axis, bottom: float) -> Iterator[str]:
    unit, per_second = ("ms", 1000.0) if axis.high <= 1 else ("s", 1.0)
    for value, _ in axis.ticks:
        x = _x(axis, value)
        yield element("line", x1=x, x2=x, y1=_TOP - 4, y2=bottom, **RULE)
        yield words(f"{value * per_second:.6g}", x, bottom + 15, text_anchor="middle")
    description = {"text_anchor": "end", "font_weight": 600}
    yield words(f"{unit} after the request", _LEFT + _SPAN, bottom + 34, **description)


def _tiers(bars: Iterable[_Bar]) -> Iterator[str]:
    rows: dict[str, int] = {}
    for bar in bars:
        rows[bar.part.tier] = min(bar.row, rows.get(bar.part.tier, bar.row))
    for tier, row in rows.items():
        y = _TOP + row * _ROW
        yield element("line", x1=0, x2=_WIDTH, y1=y - 7, y2=y - 7, **RULE)
        yield words(fitted(tier, _LEFT - 12, 13), 2, y + 18, font_size=13, font_weight=600)


def _bound(axis: Axis, bound_s: float | None, bottom: float) -> Iterator[str]:
    if bound_s is None:
        return
    x = _x(axis, bound_s)
    yield element("line", x1=x, x2=x, y1=_TOP - 8, y2=bottom, **BOUND)
    yield words(f"latency ≤ {formats.seconds(bound_s)}", x, _TOP - 14, text_anchor="end")


def _arrival(axis: Axis, bar: _Bar, sources: Sequence[_Bar]) -> Iterator[str]:
    """Yield the arrows of an operator's data, from each operator before it."""
    end = _x(axis, bar.starts_s)
    way = {"class_": "transfer", "stroke": "currentColor", "stroke_opacity": 0.6, "fill": "none"}
    for source in sources:
        start = _x(axis, source.ends_s)
        path = f"M{start:.1f} {source.middle:.1f}L{end:.1f} {bar.middle:.1f}"
        if source.row != bar.row or end - start > _LEAST:
            yield element(
                "path", title(_transfer_title(bar.part)), d=path, stroke_width=1.5, **way
            )
    if not sources and bar.part.transfer_s > 0:
        way |= {"d": f"M{_LEFT:.1f} {bar.middle:.1f}H{end:.1f}", "stroke_dasharray": "2 3"}
        yield element("path", title(_transfer_title(bar.part)), stroke_width=1.5, **way)


def _drawn(axis: Axis, bar: _Bar) -> Iterator[str]:
    x, end = _x(axis, bar.starts_s), _x(axis, bar.ends_s)
    width, top = max(end - x, _LEAST), bar.middle - _BAR / 2
    name = fitted(bar.part.operator, width - 10)
    yield element(
        "g",
        title(_bar_title(bar.part)),
        element("rect", x=x, y=top, width=width, height=_BAR, rx=3, **of_tier(bar.tier)),
        words(name, x + 6, bar.middle + 4, class_="inside") if name else "",
        class_="operator",
    )


def _bar_title(part: OperatorPart) -> str:
    knobs = " ".join(f"{knob}={value}" for knob, value in part.knobs.items())
    return (
        f"{part.operator} on {part.share:g} of {part.tier}: {formats.seconds(part.seconds)}, "
        f"{formats.dollars(part.cost_usd_per_hour)}{', ' if knobs else ''}{knobs}"
    )


def _transfer_title(part: OperatorPart) -> str:
    return f"data arrives at {part.operator} in {formats.seconds(part.transfer_s)}"
