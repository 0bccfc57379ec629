"""The search as it happens: every measured configuration over what the search had paid by then."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from circinus.api.drawing.front import Bounds, of_trial
from circinus.api.drawing.panel import Panel
from circinus.api.drawing.svg import ACCENT, GREY, drawing, element, title, words
from circinus.api.schemas.progress import TrialView
from circinus.planner.search.trials import TrialState
from circinus.studies.report.charts import linear

_SIZE = (600, 380)


def search_svg(trials: Sequence[TrialView], slo: Bounds | None = None) -> str:
    """Give the accuracy of each measured configuration, and what those that are plans cost.

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
    accuracy = linear([*bound, *(y for _, y in accuracies)], "accuracy", zero=False)
    cost = linear([y for _, y in costs], "cost of the plan, $/h")
    above = Panel(
        across=spent, up=accuracy, left=52, top=30, width=530, height=130, labelled=False
    )
    below = Panel(across=spent, up=cost, left=52, top=200, width=530, height=110)
    parts = [*above.frame(), *below.frame()]
    if slo is not None:
        parts += above.level(slo.accuracy, f"accuracy ≥ {slo.accuracy:g}")
    parts += (_mark(above, each, y) for each, y in accuracies)
    parts += _least(below, costs)
    parts += (_mark(below, each, y) for each, y in costs)
    if not trials:
        parts.append(words("Nothing is measured yet.", 317, 98, text_anchor="middle"))
    told = f"{len(trials)} configurations measured, {len(costs)} of them plans"
    if costs:
        told += f"; the cheapest costs ${min(y for _, y in costs):.4f}/h"
    return drawing("Search", told, _SIZE, parts)


def _mark(panel: Panel, trial: TrialView, value: float) -> str:
    x, y, told = panel.x(trial.spent_s), panel.y(value), title(of_trial(trial))
    if trial.state is TrialState.FEASIBLE:
        kind = {"class_": "measured feasible", "fill": ACCENT}
        return element("circle", told, cx=x, cy=y, r=3.5, **kind)
    arms = f"M{x - 3:.1f} {y - 3:.1f}l6 6m0-6l-6 6"
    kind = {"class_": f"measured {trial.state.value}", "stroke": GREY, "fill": "none"}
    return element("path", told, d=arms, stroke_width=1.5, **kind)


def _least(panel: Panel, costs: Sequence[tuple[TrialView, float]]) -> Iterator[str]:
    path, least = "", float("inf")
    for trial, value in costs:
        x = panel.x(trial.spent_s)
        if value < least:
            least = value
            path += f"H{x:.1f}V{panel.y(least):.1f}" if path else f"M{x:.1f} {panel.y(least):.1f}"
    if path:
        path += f"H{panel.left + panel.width:.1f}"
        yield element("path", d=path, class_="least", stroke=ACCENT, stroke_width=2, fill="none")
