"""One unit of each kind under more and more requests: where does it break (5.3, figure 4)?

The paper measures it on hardware: T^max is where throughput is flat and latency beyond 900 ms.
Here both T^max and L are what the simulation is told, so that this says how near to T^max a unit
may be loaded until requests that come at random are late, and not what any hardware does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite

import numpy as np

from circinus.scheduler.routing.routers import EvenRouter
from circinus.scheduler.routing.series import RouteRecorder
from circinus.scheduler.routing.simulated import RouteScenario, simulated
from circinus.scheduler.routing.units import DeploymentUnit, EndpointRoute
from circinus.studies.report.charts import COLOURS, Panel, Series, chart, decades, linear
from circinus.studies.report.tables import grouped

LOADS = tuple(tenth / 10 for tenth in range(1, 14))
"""Requests that are offered, of what a unit takes at the most."""

_ALL, _BUSY = 0, 0.8  # the one bucket that is recorded; use beyond which the paper adds units
_PANELS = (
    ("throughput", "served, requests/s", "served_per_s", linear),
    ("latency", "95th percentile, s", "p95_s", decades),
    ("use", "part that is busy", "busy", linear),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadStepRow:
    """A line of `load-steps.csv`: one unit under a steady load, from idle on."""

    unit: str
    load: float  # of `most_per_s`
    offered_per_s: float
    served_per_s: float  # while they came
    p50_s: float
    p95_s: float
    busy: float  # requests in hand, of those it can have


def load_steps(route: EndpointRoute, lasts_s: float, seed: int) -> Iterator[LoadStepRow]:
    """Load one unit of each kind of a route that is quick enough, each load for so long.

    `lasts_s` is `> 0`.
    """
    for unit in route.quick:
        for load in LOADS:
            yield _step(route, unit, load, lasts_s, seed)


def breaking_points(rows: Sequence[LoadStepRow], late_s: float) -> dict[str, float]:
    """Return unit -> the most requests/s up to which 95 % are in time; of others nothing."""
    found = {}
    for (unit,), of in grouped(rows, "unit").items():
        for row in of:
            if not row.p95_s <= late_s:
                break
            found[unit] = row.offered_per_s
    return found


def picture(rows: Sequence[LoadStepRow], late_s: float) -> str:
    """Return figure 4 as SVG: throughput, latency and use of one unit over the load."""
    x = linear([row.offered_per_s for row in rows], "offered, requests/s")
    limits = {
        "p95_s": (late_s, f"95 % within {late_s:g} s", "2 3"),
        "busy": (_BUSY, "80 % busy", "8 3"),
    }
    panels = []
    for title, label, column, axis in _PANELS:
        series = _lines(rows, column, breaking_points(rows, late_s))
        y = axis([value for line in series for _, value in line.points], label)
        if column in limits:
            at, name, dashes = limits[column]
            ends = [(x.low, at), (x.high, at)]
            series.append(Series(points=ends, colour="currentColor", name=name, dashes=dashes))
        panels.append(Panel(title=title, x=x, y=y, series=series))
    title = "One unit of each kind under load, in simulation; dots: the breaking points"
    return chart(panels, title=title, width=720, height=240)


def _step(
    route: EndpointRoute, unit: DeploymentUnit, load: float, lasts_s: float, seed: int
) -> LoadStepRow:
    alone = replace(unit, available=1)
    offered = replace(route, demand_per_s=load * unit.most_per_s, units=(alone,))
    steady = RouteScenario(name=unit.name, route=offered, low=1.0, cycle_s=lasts_s, cycles=1)
    recorder = RouteRecorder(
        units=(unit.name,), bucket_s=lasts_s, lasts_s=steady.lasts_s, late_s=steady.late_s
    )
    simulated(steady, EvenRouter(route=offered), np.random.default_rng(seed), recorder)
    series = recorder.series()
    return LoadStepRow(
        unit=unit.name,
        load=load,
        offered_per_s=offered.demand_per_s,
        served_per_s=float(series.served[0, _ALL]) / lasts_s,
        p50_s=float(series.p50_s[_ALL]),
        p95_s=float(series.p95_s[_ALL]),
        busy=float(series.busy[0, _ALL]),
    )


def _lines(
    rows: Sequence[LoadStepRow], column: str, breaking: Mapping[str, float]
) -> list[Series]:
    series = []
    for i, ((unit,), of) in enumerate(grouped(rows, "unit").items()):
        colour = COLOURS[i % len(COLOURS)]
        told = [(row.offered_per_s, float(getattr(row, column))) for row in of]
        points = [point for point in told if isfinite(point[1])]
        dots = [point for point in points if point[0] == breaking.get(unit)]
        series.append(Series(points=points, colour=colour, name=unit))
        series.append(Series(points=dots, colour=colour, radius=5))
    return series
