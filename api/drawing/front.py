"""The front: what accuracy costs, in dollars or in seconds, among what was measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Protocol

from circinus.api.drawing.marks import cross, dot, marks
from circinus.api.drawing.plot import Axis, PlotArea, linear
from circinus.api.drawing.svg import ACCENT, drawing, element, title, words
from circinus.api.schemas.plans import PlanView
from circinus.api.schemas.progress import TrialView
from circinus.api.text import formats

_SIZE = (600, 396)
_FAR = 2.5  # times the farthest plan or bound: what is beyond is drawn at the edge


class Bounds(Protocol):
    """The objectives, as a query states them."""

    @property
    def accuracy(self) -> float:
        """The least."""

    @property
    def latency_s(self) -> float | None:
        """The most; None: any."""

    @property
    def cost_usd_per_hour(self) -> float | None:
        """The most; None: any."""


class Against(StrEnum):
    """What accuracy is drawn against."""

    COST = "cost"
    LATENCY = "latency"


_NAMES = {Against.COST: "cost, $/h", Against.LATENCY: "latency, s"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Spot:
    x: float
    accuracy: float
    label: str = ""  # of a plan


def front_svg(
    plans: Sequence[PlanView],
    trials: Sequence[TrialView],
    slo: Bounds,
    chosen: str | None = None,
    against: Against = Against.COST,
    link: str | None = None,
) -> str:
    """Return plans by their numbers, from 1, among the configurations that were measured.

    Grey crosses are no plan; the plan that the schedule chose has a ring. `link` is where points
    lead to, with `{id}` for their plan's id; None: nowhere.
    """
    points = [(plan, spot) for plan in plans if (spot := _of_plan(plan, against)) is not None]
    others = [(each, spot) for each in trials if (spot := _of_trial(each, against)) is not None]
    by_latency = against is Against.LATENCY
    bound = slo.latency_s if by_latency else slo.cost_usd_per_hour
    panel = _panel([s for _, s in points], [s for _, s in others], slo.accuracy, bound, against)
    label = f"accuracy ≥ {slo.accuracy:g}"
    parts = [*panel.frame(), *panel.level(slo.accuracy, label)]
    if bound is not None:
        figure = formats.seconds(bound) if by_latency else formats.dollars(bound)
        parts += panel.wall(bound, f"{against.value} ≤ {figure}")
    parts += marks([(each, panel.x(s.x), panel.y(s.accuracy)) for each, s in others])
    parts.append(_stairs(panel, [spot for _, spot in points]))
    for number, (plan, spot) in enumerate(points, start=1):
        href = None if link is None else link.replace("{id}", plan.id)
        parts.append(_point(panel, number, spot, plan.id, ringed=plan.id == chosen, href=href))
    parts += _key(panel)
    infeasible = sum(each.plan_id is None for each, _ in others)
    description = (
        f"{len(points)} plans; {len(others)} configurations measured, {infeasible} without a plan"
    )
    return drawing(f"Accuracy against {against.value}", description, _SIZE, parts, kind="plot")


def _of_plan(plan: PlanView, against: Against) -> _Spot | None:
    x = plan.latency_s.value if against is Against.LATENCY else plan.cost_usd_per_hour
    if x is None or plan.accuracy.value is None:
        return None
    label = "\n".join((plan.id, formats.figures(plan), formats.where(plan)))
    return _Spot(x=x, accuracy=plan.accuracy.value, label=label)


def _of_trial(trial: TrialView, against: Against) -> _Spot | None:
    latency_s = None if trial.latency_s is None else trial.latency_s.value
    accuracy = None if trial.accuracy is None else trial.accuracy.value
    x = latency_s if against is Against.LATENCY else trial.cost_usd_per_hour
    if x is None or accuracy is None:
        return None
    return _Spot(x=x, accuracy=accuracy)


def _panel(
    plans: Sequence[_Spot],
    others: Sequence[_Spot],
    accuracy: float,
    bound: float | None,
    against: Against,
) -> PlotArea:
    near = [spot.x for spot in plans] + ([] if bound is None else [bound])
    far = _FAR * max(near, default=0.0) or max((spot.x for spot in others), default=1.0)
    # A little more than the largest: no point is on the edge.
    across = [min(spot.x, far) for spot in (*plans, *others)] + [1.02 * x for x in near]
    heights = [spot.accuracy for spot in (*plans, *others)]
    per_ms = against is Against.LATENCY and max(across, default=1.0) < 1.0
    axis = linear(across, _NAMES[against])
    if per_ms:
        ticks = [(value, f"{value * 1000:.6g}") for value, _ in axis.ticks]
        axis = replace(axis, label="latency, ms", ticks=ticks)
    up = accuracy_axis([accuracy, *heights])
    return PlotArea(across=axis, up=up, left=52, top=30, width=530, height=276)


def accuracy_axis(accuracies: Sequence[float]) -> Axis:
    """Return an axis of accuracies with room above them, where there may be any."""
    return linear(
        [*accuracies, min(max(accuracies, default=1.0) + 0.02, 1.0)], "accuracy", zero=False
    )


def _stairs(panel: PlotArea, spots: Sequence[_Spot]) -> str:
    """Return what accuracy is had for so much: that of the best plan that costs no more."""
    best, path = -1.0, ""
    for spot in sorted(spots, key=lambda each: (each.x, -each.accuracy)):
        if spot.accuracy > best:
            x, y = panel.x(spot.x), panel.y(spot.accuracy)
            path += f"H{x:.1f}V{y:.1f}" if path else f"M{x:.1f} {y:.1f}"
            best = spot.accuracy
    attributes = {"class_": "front", "stroke": ACCENT, "stroke_width": 1.5, "stroke_opacity": 0.6}
    return element("path", d=path, fill="none", **attributes) if path else ""


def _point(
    panel: PlotArea, number: int, spot: _Spot, plan_id: str, *, ringed: bool, href: str | None
) -> str:
    x, y = panel.x(spot.x), panel.y(spot.accuracy)
    parts = [title(spot.label), _dot(x, y)]
    if ringed:
        parts.append(_ring(x, y, 11))
    attributes = {"text_anchor": "middle", "font_size": 9, "fill": "#ffffff", "class_": "inside"}
    parts.append(words(str(number), x, y + 3.2, **attributes))
    named = {"class_": "plan", "data_plan": plan_id}
    if href is None:
        return element("g", *parts, **named)
    return element("a", *parts, href=href, aria_label=spot.label, **named)


def _dot(x: float, y: float) -> str:
    return element("circle", cx=x, cy=y, r=7.5, class_="dot", fill=ACCENT)


def _ring(x: float, y: float, radius: float) -> str:
    attributes = {"fill": "none", "stroke": ACCENT, "stroke_width": 2}
    return element("circle", cx=x, cy=y, r=radius, class_="ring", **attributes)


def _key(panel: PlotArea) -> Iterator[str]:
    """Yield what the marks mean."""
    x, y = panel.left + 8, _SIZE[1] - 34.0
    yield _dot(x, y) + words("plan, by its number", x + 13, y + 4, font_size=11)
    yield _ring(x + 265, y, 7) + words("chosen", x + 278, y + 4, font_size=11)
    y += 20
    yield dot(x, y) + words("a plan, but beaten", x + 13, y + 4, font_size=11)
    yield cross(x + 265, y) + words("no plan", x + 278, y + 4, font_size=11)
