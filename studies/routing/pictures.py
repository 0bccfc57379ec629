"""What happens to a route over time, as figures 5 to 7 of adaptive orchestration show it.

One column for each run, rows as in the paper and one it lacks: requests/s that each unit served,
units that run, latency, use of what runs, and requests that were late or never served. Upright
lines: what can be had changes (grey), the regime changes (dark), each with its reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from circinus.scheduler.routing.series import RouteSeries
from circinus.scheduler.routing.simulated import RouteScenario
from circinus.studies.report.charts import COLOURS, logarithmic, panels

_MINUTE_S = 60.0
_INK, _GREY = "black", COLOURS[-1]
_ROWS = (
    ("throughput", "requests/s"),
    ("units that run", "units"),
    ("latency", "95th percentile, s"),
    ("use of what runs", "% busy"),
    ("late, and never served", "requests/s"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRun:
    """A run of which a picture is drawn."""

    scenario: RouteScenario
    policy: str
    series: RouteSeries


def picture(runs: Sequence[RecordedRun]) -> Figure:
    """Draw runs of one scenario side by side, each row on the same axes."""
    figure, rows = panels(len(_ROWS), len(runs), width=7, height=2.6)
    for (title, label), row in zip(_ROWS, rows, strict=True):
        for run, axes in zip(runs, row, strict=True):
            axes.set(title=f"{run.policy}: {title}", xlabel="minutes", ylabel=label)
            axes.sharey(row[0])
    for run, column in zip(runs, zip(*rows, strict=True), strict=True):
        _draw(run, column)
    return figure


def _draw(run: RecordedRun, column: Sequence[Axes]) -> None:
    throughput, units, latency, use, late = column
    series, scenario = run.series, run.scenario
    at_s = series.at_s()[series.at_s() < scenario.ends_s]
    at, view = at_s / _MINUTE_S, slice(len(at_s))
    for i, name in enumerate(series.units):
        lines = (
            (throughput, series.served[i] / series.bucket_s),
            (units, series.running[i]),
            (latency, series.unit_p95_s[i]),
            (use, 100 * series.busy[i]),
        )
        for axes, values in lines:
            axes.plot(at, values[view], color=COLOURS[i % len(COLOURS)], label=name)
    served = series.served.sum(axis=0) / series.bucket_s
    throughput.plot(at, served[view], color=_GREY, label="served by all")
    demand = [scenario.demand_per_s(each) for each in at_s.tolist()]
    throughput.plot(at, demand, "--", color=_INK, label="demand")
    latency.plot(at, series.p50_s[view], ":", color=_INK, label="median of all")
    latency.axhline(scenario.late_s, color=_GREY, linestyle="--", label="late beyond")
    logarithmic(latency, "y")
    late.plot(at, series.late[view] / series.bucket_s, color=_INK, label="late")
    late.plot(at, series.lost[view] / series.bucket_s, color=_GREY, label="never served")
    for axes in column:
        axes.set_xticks(np.arange(4 * scenario.cycles + 1) * scenario.cycle_s / 4 / _MINUTE_S)
        _mark_changes(axes, run, named=axes is late)
        if axes is not latency:
            axes.set_ylim(bottom=0)


def _mark_changes(axes: Axes, run: RecordedRun, *, named: bool) -> None:
    """Draw an upright line for each change of what can be had, and of the regime."""
    marks = [
        (change.at_s, _GREY, f"{change.unit}: {_number(change.available)} can be had")
        for change in run.scenario.changes
    ]
    marks += [
        (change.at_s, _INK, f"{run.policy}: {change.regime}, {change.why}")
        for change in run.series.regimes[1:]
    ]
    for at_s, colour, words in marks:
        minutes = at_s / _MINUTE_S
        label = f"{minutes:.0f} min, {words}" if named else None
        axes.axvline(minutes, color=colour, linestyle="--", linewidth=1, label=label)


def _number(available: int | None) -> str:
    return "any number" if available is None else str(available)
