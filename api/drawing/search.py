"""The search as it happens: every measured configuration over what the search had paid by then."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from circinus.api.drawing.front import Bounds, accuracy_axis
from circinus.api.drawing.marks import marks
from circinus.api.drawing.plot import PlotArea, linear
from circinus.api.drawing.svg import ACCENT, drawing, element, words
from circinus.api.schemas.progress import TrialView
from circinus.planner.search.result import TrialState

_SIZE = (600, 360)


def search_svg(trials: Sequence[TrialView], slo: Bounds | None = None) -> str:
    """Return the accuracy of each measured configuration, and what those that are plans cost.

    `trials` are in the order of measuring; the line is the least cost so far.
    """
    spent = linear([each.spent_s for each in trials], "operator seconds spent")
    accuracies = [
        (each, each.accuracy.value)
        for each in trials
        if each.accuracy is not None and each.accuracy.value is not None
    ]
    costs = [
        (each, each.cost_usd_per_hour)
        for each in trials
        if each.state is TrialState.FEASIBLE and each.cost_usd_per_hour is not None
    ]
    bound = [] if slo is None else [slo.accuracy]
    accuracy = accuracy_axis([*bound, *(y for _, y in accuracies)])
    cost = linear([y for _, y in costs], "cost of the plan, $/h")
    above = PlotArea(
        across=spent, up=accuracy, left=52, top=30, width=530, height=130, labelled=False
    )
    below = PlotArea(across=spent, up=cost, left=52, top=200, width=530, height=110)
    parts = [*above.frame(), *below.frame()]
    if slo is not None:
        parts += above.level(slo.accuracy, f"accuracy ≥ {slo.accuracy:g}")
    parts += marks([(each, above.x(each.spent_s), above.y(y)) for each, y in accuracies])
    parts += _least(below, costs)
    parts += marks([(each, below.x(each.spent_s), below.y(y)) for each, y in costs])
    if not trials:
        parts.append(words("Nothing is measured yet.", 317, 98, text_anchor="middle"))
    description = f"{len(trials)} configurations measured, {len(costs)} of them plans"
    if costs:
        description += f"; the cheapest costs ${min(y for _, y in costs):.4f}/h"
    return drawing("Search", description, _SIZE, parts, kind="plot")


def _least(panel: PlotArea, costs: Sequence[tuple[TrialView, float]]) -> Iterator[str]:
    path, least = "", float("inf")
    for trial, value in costs:
        x = panel.x(trial.spent_s)
        if value < least:
            least = value
            path += f"H{x:.1f}V{panel.y(least):.1f}" if path else f"M{x:.1f} {panel.y(least):.1f}"
    if path:
        path += f"H{panel.left + panel.width:.1f}"
        yield element("path", d=path, class_="least", stroke=ACCENT, stroke_width=2, fill="none")
