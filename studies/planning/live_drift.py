"""Drifts of a running deployment (Circinus 6.4, figure 17): a link thins, then inputs grow dark.

The demo's service plans and serves a query; requests come at a constant rate throughout. When it
has searched for cheaper plans, and one has answered for 26 seconds, the link between device and
edge thins. When another has answered for a while, the link is as before, and 30 seconds later
requests carry clips in a quarter of the light.

Deviates from the paper: `digits` instead of video chat, tiers that are emulated by waiting, and
one drift after the other instead of 4 seconds apart, so that each has its own time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from circinus.pipelines.model.profile import FloatArray
from circinus.studies.report.charts import COLOURS, panels

_MEAN_OF = 20  # answers, in the picture
_ABOVE = ("data", "axes fraction")


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftAnswer:
    """A request and its answer; a line of `answers.csv`."""

    run: int
    drift: str  # `before`, `link`, `light`: the latest one; `between`: after the link's
    at_s: float  # when it was sent, since the first request
    plan: str | None  # that answered; None: none did
    latency_s: float | None
    score: float | None  # in [0, 1]


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveDrift:
    """What became of a drift; a line of `live-drift.csv`."""

    run: int
    drift: str  # `link` or `light`
    at_s: float  # since the first request
    why: str | None  # in the service's words; None: it noticed nothing
    noticed_s: float | None  # from the drift to the start of replanning
    # from the drift to the first request that another plan answered; None: none did
    replaced_s: float | None
    latency_before_s: float | None  # mean over the plan's answers before the drift
    latency_drifted_s: float | None  # over its answers since
    latency_after_s: float | None  # over those of others
    latency_slo_s: float
    accuracy_before: float | None
    accuracy_drifted: float | None
    accuracy_after: float | None
    accuracy_slo: float
    answered: int  # requests since the drift
    refused: int  # likewise: while no plan served
    phase: str  # of the query at the end
    message: str | None  # about that, in the service's words


def picture(rows: Sequence[LiveDrift], answers: Sequence[DriftAnswer], number: int) -> Figure:
    """Draw latency and accuracy of a run over time, as figure 17 does."""
    figure, [[latency], [accuracy]] = panels(2, width=8, height=2.6)
    own = [a for a in answers if a.run == number and a.plan is not None]
    plans = list(dict.fromkeys(a.plan for a in own))
    for i, plan in enumerate(plans):
        of_plan = [a for a in own if a.plan == plan]
        at, colour, name = [a.at_s for a in of_plan], COLOURS[i % len(COLOURS)], f"plan {i + 1}"
        latency.plot(at, _known(a.latency_s for a in of_plan), ".", color=colour, label=name)
        scores = _known(a.score for a in of_plan)
        means = [scores[max(n - _MEAN_OF, 0) : n].mean() for n in range(1, len(scores) + 1)]
        accuracy.plot(at, means, color=colour, label=name)
    slo = next(row for row in rows if row.run == number)
    for axes, bound in ((latency, slo.latency_slo_s), (accuracy, slo.accuracy_slo)):
        axes.axhline(bound, linestyle="--", color=COLOURS[-1], label="SLO")
        for row in rows:
            if row.run == number:
                axes.axvline(row.at_s, linestyle=":", color=COLOURS[-1])
                axes.annotate(row.drift, (row.at_s, 0.98), xycoords=_ABOVE, va="top", size="small")
    latency.set(title=f"run {number}", ylabel="latency, s", yscale="log")
    accuracy.set(xlabel="seconds", ylabel=f"mean score of {_MEAN_OF}", ylim=(0, 1))
    return figure


def _known(values: Iterable[float | None]) -> FloatArray:
    """Return values, NaN for None."""
    return np.array([np.nan if value is None else value for value in values])
