"""One unit of each kind under more and more requests: where does it break (5.3, figure 4)?

The paper measures it on hardware: T^max is where throughput is flat and latency beyond 900 ms.
Here both T^max and L are inputs of the simulation, so that this shows how near to T^max a unit
may be loaded until requests that arrive at random are late, and not what any hardware does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from matplotlib.figure import Figure

from circinus.scheduler.routing.routers import EvenRouter
from circinus.scheduler.routing.series import RouteRecorder
from circinus.scheduler.routing.simulated import RouteScenario, simulated
from circinus.scheduler.routing.units import DeploymentUnit, EndpointRoute
from circinus.studies.report.charts import COLOURS, logarithmic, panels
from circinus.studies.report.tables import grouped

LOADS = tuple(tenth / 10 for tenth in range(1, 14))
"""Requests that are offered, of what a unit takes at the most."""

# deviates: figure-4-simulated
_ALL, _BUSY = 0, 0.8  # the one bucket that is recorded; use beyond which the paper adds units


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadStepRow:
    """A line of `load-steps.csv`: one unit under a steady load, from idle on."""

    unit: str
    load: float  # of `most_per_s`
    offered_per_s: float
    served_per_s: float  # while requests arrived
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
    points = {}
    for (unit,), of in grouped(rows, "unit").items():
        for row in of:
            if not row.p95_s <= late_s:
                break
            points[unit] = row.offered_per_s
    return points


def picture(rows: Sequence[LoadStepRow], late_s: float) -> Figure:
    """Draw figure 4: throughput, latency and use of one unit over the load."""
    figure, [[throughput], [latency], [use]] = panels(3, width=9, height=2.8)
    throughput.set(title="throughput", ylabel="served, requests/s")
    latency.set(title="latency", ylabel="95th percentile, s")
    logarithmic(latency, "y")
    use.set(title="use", ylabel="part that is busy")
    columns = {"served_per_s": throughput, "p95_s": latency, "busy": use}
    breaking = breaking_points(rows, late_s)
    for i, ((unit,), of) in enumerate(grouped(rows, "unit").items()):
        offered = [row.offered_per_s for row in of]
        at = [i for i, rate in enumerate(offered) if rate == breaking.get(unit)]
        for column, axes in columns.items():
            values = [getattr(row, column) for row in of]
            colour = COLOURS[i % len(COLOURS)]
            axes.plot(offered, values, "o-", color=colour, label=unit, markevery=at)
            axes.set_xlabel("offered, requests/s")
    within = f"95 % within {late_s:g} s"
    latency.axhline(late_s, color="black", linestyle="--", label=within)
    use.axhline(_BUSY, color="black", linestyle=":", label="80 % busy")
    return figure


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
