"""Figures 5 to 7 of adaptive orchestration, in simulation: a route over two load cycles.

What each shows in the paper (5.4), and here:

- 5, cost mode while all can be had: throughput and latency by unit, use of units, failures.
- 6, the L4's number is limited and the limit is lifted in the middle. The paper is in capacity
  mode all the time; here policies decide, and ours never wants an L4.
- 7, the cheapest is lost in one cycle and back in the next: failover, and cost mode again.

Figure 3 compares two generated images, which no simulation does; figure 4 is in `load_steps`. The
paper's axes are times and rates of its cluster: shapes compare, numbers do not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import isfinite

import numpy as np

from circinus.pipelines.model.profile import FloatArray
from circinus.scheduler.routing.series import RouteSeries
from circinus.scheduler.routing.simulated import RouteScenario
from circinus.studies.report.charts import (
    COLOURS,
    Axis,
    Panel,
    Series,
    chart,
    decades,
    linear,
)

_MINUTE_S = 60.0
_INK, _GREY = "currentColor", COLOURS[-1]
_PANELS: Sequence[tuple[str, str, Callable[[Iterable[float], str], Axis]]] = (
    ("throughput", "requests/s", linear),
    ("units that run", "units", linear),
    ("latency", "95th percentile, s", decades),
    ("use of what runs", "% busy", linear),
    ("late, and never served", "requests/s", linear),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedRun:
    """A run of which a picture is drawn."""

    scenario: RouteScenario
    policy: str
    series: RouteSeries


def picture(runs: Sequence[WatchedRun]) -> str:
    """Return runs of one scenario as SVG, side by side, each row on the same axes."""
    scenario, drawn = runs[0].scenario, [_drawn(run) for run in runs]
    panels = []
    for row, (title, label, axis) in enumerate(_PANELS):
        y = axis([y for told in drawn for line in told[row] for _, y in line.points], label)
        panels += [
            Panel(
                title=f"{run.policy}: {title}",
                x=_time(scenario),
                y=y,
                series=[*told[row], *_marks(run, y, named=row == len(_PANELS) - 1)],
            )
            for run, told in zip(runs, drawn, strict=True)
        ]
    title = f"{scenario.name}: {', '.join(run.policy for run in runs)}"
    return chart(panels, title=title, columns=len(runs), width=520, height=200)


def _drawn(run: WatchedRun) -> tuple[list[Series], ...]:
    """Return what is drawn of a run, as `_PANELS`."""
    series, scenario = run.series, run.scenario
    at_s = series.at_s()[series.at_s() < scenario.ends_s]

    def line(values: FloatArray, colour: str, name: str, dashes: str = "") -> list[Series]:
        points = zip((at_s / _MINUTE_S).tolist(), values.tolist(), strict=False)
        whole = [[*of] for known, of in groupby(points, lambda at: isfinite(at[1])) if known]
        return [Series(points=of, colour=colour, name=name, dashes=dashes) for of in whole]

    def units(values: FloatArray) -> list[Series]:  # (U, B)
        named = enumerate(zip(series.units, values, strict=True))
        return [s for i, (name, of) in named for s in line(of, COLOURS[i % len(COLOURS)], name)]

    demand = np.array([scenario.demand_per_s(at) for at in at_s.tolist()])
    limit = np.full(at_s.shape, scenario.late_s)
    return (
        [
            *line(series.served.sum(axis=0) / series.bucket_s, _GREY, "served by all"),
            *units(series.served / series.bucket_s),
            *line(demand, _INK, "demand", "6 3"),
        ],
        units(series.running),
        [
            *units(series.unit_p95_s),
            *line(series.p50_s, _INK, "median of all", "1 3"),
            *line(limit, _GREY, "late beyond", "3 3"),
        ],
        units(100 * series.busy),
        [
            *line(series.late / series.bucket_s, _INK, "late"),
            *line(series.lost / series.bucket_s, _GREY, "never served"),
        ],
    )


def _marks(run: WatchedRun, y: Axis, *, named: bool) -> list[Series]:
    """Return an upright line for whatever changes what can be had, and for each change of regime.

    Named are those of the last row, so that they stand at the end of the legend.
    """
    told = [
        (change.at_s, _GREY, f"{change.unit}: {_number(change.available)} can be had")
        for change in run.scenario.changes
    ]
    told += [
        (change.at_s, _INK, f"{run.policy}: {change.regime}, {change.why}")
        for change in run.series.regimes[1:]
    ]
    return [
        Series(
            points=[(at_s / _MINUTE_S, y.low), (at_s / _MINUTE_S, y.high)],
            colour=colour,
            name=f"{at_s / _MINUTE_S:.0f} min, {words}" if named else "",
            dashes="4 4",
        )
        for at_s, colour, words in told
    ]


def _number(available: int | None) -> str:
    return "any number" if available is None else str(available)


def _time(scenario: RouteScenario) -> Axis:
    quarters = [i * scenario.cycle_s / 4 / _MINUTE_S for i in range(4 * scenario.cycles + 1)]
    ticks = [(at, f"{at:.3g}") for at in quarters]
    return Axis(label="minutes", low=0.0, high=scenario.ends_s / _MINUTE_S, ticks=ticks)
