"""What does it cost to serve an endpoint while capacity comes and goes, and how many are late?

The paper's units (its table 1) at a tenth of their throughput, so that a run takes seconds: an
hour from low to low, twice. After its figures 5 to 7: all can be had; the cheapest is lost in the
first cycle and is back in the second; the L4's number is limited until the middle. What happens
over time is drawn of the first seed under the first two policies (`pictures`), and what one unit
does under load (`load_steps`).

"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, fields, replace
from itertools import groupby
from pathlib import Path
from typing import Annotated

import numpy as np

from circinus.pipelines import checks
from circinus.scheduler.routing.routers import (
    OFTEN_S,
    POLLED_S,
    EvenRouter,
    RegimeRouter,
    Router,
    StaticRouter,
)
from circinus.scheduler.routing.series import RouteRecorder
from circinus.scheduler.routing.simulated import CapacityChange, RouteScenario, simulated
from circinus.scheduler.routing.traffic import RouteMethod
from circinus.scheduler.routing.units import DeploymentUnit, EndpointRoute, ExecutionMode
from circinus.studies.report import pages
from circinus.studies.report.charts import svg
from circinus.studies.report.tables import mean, of_column, ratio_of, summarised, text, written
from circinus.studies.routing import load_steps, pictures
from circinus.studies.routing.load_steps import LoadStepRow
from circinus.studies.routing.pictures import RecordedRun

_TABLE = (
    # name, hardware, framework, execution, USD an hour, requests per second, seconds
    ("inf2", "inf2.xlarge", "neuron", ExecutionMode.GRAPH, 0.7582, 105.0, 0.67),
    ("trn1", "trn1.2xlarge", "neuron", ExecutionMode.GRAPH, 1.3438, 130.0, 0.51),
    ("g5-triton", "g5.xlarge", "triton", ExecutionMode.GRAPH, 1.0060, 90.0, 0.68),
    ("g6-triton", "g6.xlarge", "triton", ExecutionMode.GRAPH, 0.8048, 61.0, 0.96),
    ("g5-cuda", "g5.xlarge", "cuda", ExecutionMode.EAGER, 1.0060, 60.0, 0.92),
)
UNITS = tuple(
    DeploymentUnit(
        name=name,
        model="sd21",
        hardware=hardware,
        framework=framework,
        execution=execution,
        price_usd_per_hour=price,
        most_per_s=most,
        latency_s=latency,
    )
    for name, hardware, framework, execution, price, most, latency in _TABLE
)


# deviates: a-tenth-of-the-units
_TENTH = tuple(replace(unit, most_per_s=unit.most_per_s / 10) for unit in UNITS)
PUBLISHED_ROUTE = EndpointRoute(name="sd21", demand_per_s=30.0, latency_s=1.0, units=_TENTH)
"""Three hundred requests a second at the most, at a tenth."""

ROUTERS: dict[str, Callable[[EndpointRoute], Router]] = {
    "regimes": lambda route: RegimeRouter(route=route),
    "published": lambda route: RegimeRouter(
        route=route, method=RouteMethod.PUBLISHED, polls_s=POLLED_S
    ),
    "published_5s": lambda route: RegimeRouter(
        route=route, method=RouteMethod.PUBLISHED, polls_s=OFTEN_S
    ),
    "static": lambda route: StaticRouter(route=route),
    "round_robin": lambda route: EvenRouter(route=route),
}
"""By name: ours; as published, with the authors' period and with one of 5 s; the cheapest whatever
can be had; equal parts."""

_DRAWN = 2  # policies, side by side
_BUCKETS = 60  # of a load cycle, in pictures
_STEPS = 12  # of load as long as a load cycle
_FIGURES = (5, 7, 6)  # of the paper, of each of `scenarios`
_ABOUT = (
    "All of this is simulated. Late is longer than twice the route's latency; switch is the "
    "longest from a loss until nothing was sent there. Figures are numbered as in Adaptive "
    "Orchestration (Biran and Kissos, 2025); its figure 3 compares two generated images and has "
    "no counterpart. Figures 5 to 7 show the first seed. Upright lines: what can be had changes "
    "(grey), the regime changes (dark), each with its reason."
)
_HEADINGS = {
    4: "Figure 4: one unit of each kind under load; dots are breaking points",
    5: "Figure 5: all can be had",
    6: "Figure 6: the L4 is limited until the middle",
    7: "Figure 7: the first unit is lost in one cycle and back in the next",
}


def scenarios(route: EndpointRoute, cycle_s: float) -> list[RouteScenario]:
    """Return the events of a route; its first unit is lost, the L4 is limited."""
    quiet = RouteScenario(name="all there", route=route, cycle_s=cycle_s, cycles=2)
    first = route.units[0].name
    lost = (
        CapacityChange(at_s=0.42 * cycle_s, unit=first, available=0),
        CapacityChange(at_s=1.08 * cycle_s, unit=first, available=None),
    )
    cases = [quiet, replace(quiet, name=f"{first} lost", changes=lost)]
    if "g6-triton" in {unit.name for unit in route.units}:
        limited = (
            CapacityChange(at_s=0.0, unit="g6-triton", available=1),
            CapacityChange(at_s=cycle_s, unit="g6-triton", available=None),
        )
        cases.append(replace(quiet, name="g6-triton limited", changes=limited))
    return cases


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingRow:
    """A line of `routing.csv`: a run."""

    scenario: str
    policy: str
    seed: int
    requests: int
    served: int
    late: int  # of those: longer than twice the route's latency
    cost_usd: float
    usd_per_1000: float
    p95_s: float
    switch_s: float  # longest from a loss until nothing was sent there


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingCell:
    """The runs of a scenario under a policy: means, and the worst where stated."""

    scenario: str
    policy: str
    runs: Annotated[int, len]
    # requests, of all runs
    not_served: Annotated[int, lambda rows: sum(row.requests - row.served for row in rows)]
    late: Annotated[float, ratio_of("late", "requests")]  # share of the requests
    usd_per_1000: Annotated[float | None, of_column(mean, "usd_per_1000")]
    p95_s: Annotated[float | None, of_column(mean, "p95_s")]
    longest_switch_s: Annotated[float, of_column(max, "switch_s")]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingStudy:
    """What is compared."""

    route: EndpointRoute = PUBLISHED_ROUTE
    policies: Sequence[str] = tuple(ROUTERS)
    seeds: int = 5
    first_seed: int = 0
    cycle_s: float = 3600.0  # from low to low

    def __post_init__(self) -> None:
        for name in self.policies:
            checks.among("policies", name, ROUTERS)
        checks.positive("route.demand_per_s", self.route.demand_per_s)
        checks.require(
            len(self.route.quick) > 0, "route.units", "must have one that is quick enough", 0
        )
        checks.at_least("seeds", self.seeds, 1)
        checks.at_least("first_seed", self.first_seed, 0)

    def rows(self, watched: Callable[[RecordedRun], None] | None = None) -> Iterator[RoutingRow]:
        """Run it all; policies of a scenario and seed meet the same arrivals.

        `watched` gets the run of the first seed under the policies that are drawn.
        """
        for scenario in scenarios(self.route, self.cycle_s):
            for seed in range(self.first_seed, self.first_seed + self.seeds):
                for policy in self.policies:
                    drawn = policy in self.policies[:_DRAWN] and seed == self.first_seed
                    yield _row(scenario, policy, seed, watched if drawn else None)


def run(
    study: RoutingStudy, out: Path, observer: Callable[[RoutingRow], None] = lambda row: None
) -> list[RoutingRow]:
    """Run a study into a folder.

    `routing.csv` and `load-steps.csv`; `figure-4.svg` to `figure-7.svg`, of those of the route;
    `routing.html`.
    """
    route, watched = study.route, list[RecordedRun]()
    rows = written(study.rows(watched.append), RoutingRow, out / "routing.csv", observer=observer)
    steps = load_steps.load_steps(route, study.cycle_s / _STEPS, study.first_seed)
    loaded = written(steps, LoadStepRow, out / "load-steps.csv")
    figures = {4: load_steps.picture(loaded, 2 * route.latency_s)}
    runs = {name: [*of] for name, of in groupby(watched, lambda run: run.scenario.name)}
    figures |= {n: pictures.picture(of) for n, of in zip(_FIGURES, runs.values(), strict=False)}
    drawn = {number: svg(figure) for number, figure in figures.items()}
    for number, image in drawn.items():
        (out / f"figure-{number}.svg").write_text(image, encoding="utf-8")
    (out / "routing.html").write_text(page(summary(rows), drawn), encoding="utf-8")
    return rows


def page(cells: Sequence[RoutingCell], figures: Mapping[int, str]) -> str:
    """Return the report as one HTML document with its figures, by number, inside."""
    head = [column.name for column in fields(RoutingCell)]
    table = pages.grid(head, [[text(value, 3) for value in astuple(cell)] for cell in cells])
    drawn = [pages.heading(_HEADINGS[n]) + image for n, image in sorted(figures.items())]
    return pages.page("Routing over deployment units", pages.paragraph(_ABOUT), table, *drawn)


def summary(rows: Sequence[RoutingRow]) -> list[RoutingCell]:
    """Return a cell per scenario and policy, in order."""
    return summarised(rows, RoutingCell, "scenario", "policy")


def _row(
    scenario: RouteScenario,
    policy: str,
    seed: int,
    watched: Callable[[RecordedRun], None] | None,
) -> RoutingRow:
    recorder = None
    if watched is not None:
        recorder = RouteRecorder(
            units=tuple(unit.name for unit in scenario.route.units),
            bucket_s=scenario.cycle_s / _BUCKETS,
            lasts_s=scenario.lasts_s,
            late_s=scenario.late_s,
        )
    router = ROUTERS[policy](scenario.route)
    result = simulated(scenario, router, np.random.default_rng(seed), recorder)
    if watched is not None and recorder is not None:
        watched(RecordedRun(scenario=scenario, policy=policy, series=recorder.series()))
    return RoutingRow(
        scenario=scenario.name,
        policy=policy,
        seed=seed,
        requests=result.requests,
        served=result.served,
        late=result.late,
        cost_usd=result.usd,
        usd_per_1000=result.usd_per_1000,
        p95_s=result.p95_s,
        switch_s=result.switch_s,
    )
