"""Marks of measured configurations: a dot for a plan, else a cross, each with a tooltip.

Of many only the latest have tooltips. The others are one path for each state, so that a search
over thousands of configurations is drawn every second.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from circinus.api.drawing.svg import ACCENT, GREY, element, title
from circinus.api.schemas.progress import TrialView
from circinus.api.text import formats
from circinus.planner.search.result import TrialState

_TELLING = 250
Spot = tuple[TrialView, float, float]
"""What was measured, and where that is drawn, x and y."""


def marks(spots: Sequence[Spot]) -> Iterator[str]:
    """Yield the marks, in the order of measuring."""
    silent: dict[TrialState, list[Spot]] = {}
    for spot in spots[:-_TELLING]:
        silent.setdefault(spot[0].state, []).append(spot)
    for state, them in silent.items():
        path = "".join(_path(state, x, y) for _, x, y in them)
        yield element("path", d=path, **_look(state))
    for trial, x, y in spots[-_TELLING:]:
        tooltip = title(trial_title(trial))
        yield element("path", tooltip, d=_path(trial.state, x, y), **_look(trial.state))


def cross(x: float, y: float) -> str:
    """Return the mark of what is no plan."""
    return element("path", d=_path(TrialState.LATE, x, y), **_look(TrialState.LATE))


def dot(x: float, y: float) -> str:
    """Return the mark of what is a plan."""
    return element("path", d=_path(TrialState.FEASIBLE, x, y), **_look(TrialState.FEASIBLE))


def trial_title(trial: TrialView) -> str:
    """Return the figures of a measured configuration, in lines."""
    figures = [
        f"{trial.state.value}, {trial.inputs} inputs",
        f"accuracy {formats.accuracy(trial.accuracy)}",
        f"latency {formats.latency(trial.latency_s)}",
        formats.dollars(trial.cost_usd_per_hour),
    ]
    return "\n".join((", ".join(figures), formats.settings(trial.configuration)))


def _path(state: TrialState, x: float, y: float) -> str:
    if state is TrialState.FEASIBLE:
        return f"M{x:.1f} {y:.1f}h.01"  # a stroke with round ends
    return f"M{x - 3:.1f} {y - 3:.1f}l6 6m0-6l-6 6"


def _look(state: TrialState) -> dict[str, object]:
    known = {"class_": f"measured {state.value}", "fill": "none"}
    if state is TrialState.FEASIBLE:
        return known | {"stroke": ACCENT, "stroke_width": 6.5, "stroke_linecap": "round"}
    return known | {"stroke": GREY, "stroke_width": 1.5}
