"""The demo: a service of its own plans, deploys and serves queries of `digits` over HTTP.

Everything shown comes from the service's answers; nothing is kept when the demo ends.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.rule import Rule
from rich.text import Text

from circinus.api import formats
from circinus.api.bootstrap.execution import CalibrationSampling, calibrated_infrastructure
from circinus.api.cli.command import on_signal
from circinus.api.cli.demo.report import Report, ServedQuery, comparison, problems_of, send
from circinus.api.cli.demo.service import running_service
from circinus.api.cli.rendering import tables
from circinus.api.cli.screen import Follow
from circinus.api.client import Client
from circinus.api.phases import SETTLED, QueryPhase
from circinus.api.schemas.planning import MethodView
from circinus.api.schemas.progress import QueryView
from circinus.api.schemas.query import DataSource, LimitsRequest, QueryRequest, SloRequest
from circinus.deploy.methods import Method
from circinus.deploy.profiling.calibration import CalibrationSettings
from circinus.pipelines.clock import Clock, SystemClock
from circinus.pipelines.infrastructure import Infrastructure
from circinus.pipelines.presets import PRESETS
from circinus.pipelines.registry import load_pipeline

PIPELINE = "digits"
PLANNING_SEED = 11  # of the inputs that are planned on
HELD_OUT_SEED = 12  # of the inputs that requests are made of: none of them was planned on
INPUTS = 48
REQUESTS_PER_QUERY = 68
_PROFILING_S = 15.0  # never reached on an idle computer; a busy one may take this long
_CONFIGURATIONS = 48  # enough for a feasible plan, few enough for a demo
_DEVICE_SPEED = 0.05
_SETTLED_WITHIN_S = 180.0
_POLL_S = 0.25
_MOST_PLANS = 4
_PLANS_TITLE = "Plans: no other is better in cost, latency, accuracy and demand at once"
_SAMPLING = CalibrationSampling(configurations=4, inputs=2, seed=PLANNING_SEED)
_CALIBRATION = CalibrationSettings(repetitions=5, pause_s=0.03)
"""Seconds, not minutes: enough to tell served from profiled, see `circinus calibrate`."""


@dataclass(frozen=True, slots=True)
class DemoCase:
    """One query of the demo."""

    name: str  # for people
    slo: SloRequest
    ends: QueryPhase = QueryPhase.SERVING  # the phase that it must reach
    configurations: int | None = _CONFIGURATIONS  # most that are measured; None: any number

    @property
    def request(self) -> QueryRequest:
        """What is submitted."""
        return QueryRequest(
            pipeline=PIPELINE,
            data=DataSource(examples=INPUTS, seed=PLANNING_SEED),
            slo=self.slo,
            limits=LimitsRequest(profiling_s=_PROFILING_S, configurations=self.configurations),
        )


CASES = (
    DemoCase("frugal", SloRequest(accuracy=0.7, latency_s=0.2)),
    DemoCase("quick", SloRequest(accuracy=0.75, latency_s=0.04)),
    DemoCase("careful", SloRequest(accuracy=0.82, latency_s=0.07, cost_usd_per_hour=0.5)),
    DemoCase(
        "impossible", SloRequest(accuracy=0.7, latency_s=0.0001), QueryPhase.INFEASIBLE, None
    ),
)
"""Three with unlike objectives, and one that nothing can meet."""


def run(console: Console, method: Method | None = None) -> Report:
    """Run the demo on a console; leaves nothing behind, also when interrupted.

    Without a method the service goes by that of the environment.
    """
    clock = SystemClock()
    start = clock.now()
    with on_signal(signal.SIGTERM, signal.default_int_handler):  # ends it as Ctrl-C does, in order
        infrastructure = _calibrated(console)
        with running_service(infrastructure, clock, method) as client:
            demo = _Demo(console, client, client.method())
            demo.submit()
            demo.wait(clock)
            problems = list(demo.unexpected())
            demo.show_plans()
            served = demo.serve()
    problems += problems_of(served)
    elapsed_s = clock.now() - start
    if problems:
        console.print(Text("This did not work:", style="bold red"))
        for problem in problems:
            console.print(f"  {problem}", soft_wrap=True)
    else:
        text = f"Everything worked and was stopped again ({elapsed_s:.0f} s)."
        console.print(Text(text, style="bold green"))
    return Report(served=served, problems=problems, elapsed_s=elapsed_s, method=demo.method)


def _calibrated(console: Console) -> Infrastructure:
    """Give the demo's infrastructure with what serving makes of the seconds that are profiled."""
    _heading(console, "How fast this computer serves")
    with TemporaryDirectory(prefix="circinus-demo-") as logs:
        infrastructure = calibrated_infrastructure(
            demo_infrastructure(),
            (PIPELINE, load_pipeline(PIPELINE)),
            _SAMPLING,
            _CALIBRATION,
            addresses={},
            logs=Path(logs),
        )
    as_is = next(tier for tier in infrastructure.tiers if not tier.emulated)
    console.print(
        f"  In served requests, operators take {1 / as_is.speed_factor:.2f} times as long as in "
        "a profile,\n"
        "  each its own: measured on a worker like those that serve, and planned with."
    )
    return infrastructure


def demo_infrastructure() -> Infrastructure:
    """Give the preset `local` with a device so slow that other tiers are worth their price."""
    local = PRESETS["local"]
    device = local.tiers[0]
    # Waiting slows operators down, not the calls of an instance: those take as long as before.
    slower = _DEVICE_SPEED / device.speed_factor
    device = replace(
        device,
        speed_factor=_DEVICE_SPEED,
        call_s=device.call_s * slower,
        call_s_per_byte=device.call_s_per_byte * slower,
    )
    return replace(local, name="demo", tiers=(device, *local.tiers[1:]))


@dataclass(slots=True)
class _Demo:
    """The queries of the demo at a service, step by step; each step shows what it found."""

    console: Console
    client: Client
    method: MethodView  # of the service
    cases: dict[str, DemoCase] = field(default_factory=dict)  # by the ids of their queries
    queries: dict[str, QueryView] = field(default_factory=dict)  # as they were seen last

    def submit(self) -> None:
        """Show the service and submit the queries."""
        console, client = self.console, self.client
        _heading(console, "A service on this computer")
        planned, scheduled, dispatched = formats.method(self.method)
        console.print(f"  {client.base_url}, started for this demo")
        console.print(f"  Queries are {planned},\n  {scheduled}, {dispatched}.")
        console.print(tables.tiers_table(client.infrastructure()))
        _heading(console, "Four queries, unlike objectives")
        console.print(f"  Planned on {INPUTS} clips of seed {PLANNING_SEED}.")
        for case in CASES:
            query = client.submit(case.request)
            self.cases[query.id] = case
            line = f"  {case.name:<12}{query.id}  {formats.objectives(case.request)}"
            console.print(line, soft_wrap=True)

    def wait(self, clock: Clock) -> None:
        """Return once each query is served or can no longer be."""
        _heading(self.console, "Planning and deployment")
        deadline = clock.now() + _SETTLED_WITHIN_S
        with Follow(self.console) as lines:
            while True:
                self.queries = {each: self.client.query(each) for each in self.cases}
                told = {i: (_key(q), tables.progress_line(q)) for i, q in self.queries.items()}
                lines.update(self._named(told))
                settled = all(query.phase in SETTLED for query in self.queries.values())
                if settled or clock.now() > deadline:
                    return
                clock.sleep(_POLL_S)

    def unexpected(self) -> Iterator[str]:
        """Give what did not become of the queries, in words."""
        for query_id, query in self.queries.items():
            case = self.cases[query_id]
            if query.phase is not case.ends:
                told = f": {query.message}" if query.message else ""
                yield f"{case.name} is {query.phase.value}, should be {case.ends.value}{told}"
                continue
            binding = query.shortfall is not None and query.shortfall.binding
            if query.phase is QueryPhase.INFEASIBLE and not binding:
                yield f"{case.name} is infeasible, but what binds is not told"

    def show_plans(self) -> None:
        """Show the plans of every query, and which of them the schedule chose."""
        console = self.console
        _heading(console, _PLANS_TITLE)
        names = {query_id: case.name for query_id, case in self.cases.items()}
        for query_id, query in self.queries.items():
            if query.shortfall is not None:
                console.print(Text(f"{names[query_id]}: {query.phase.value}", style="bold"))
                console.print(tables.shortfall_text(query.shortfall))
                continue
            found = self.client.plans(query_id).items
            title = f"{names[query_id]}: {formats.objectives(query.request)}"
            chosen = query.plan_id
            console.print(tables.plans_table(found, title=title, chosen=chosen, most=_MOST_PLANS))
        _heading(console, "Which plan runs where")
        console.print(tables.schedule_table(self.client.schedule(), names))

    def serve(self) -> list[ServedQuery]:
        """Send requests to what serves; give what they found."""
        console, client = self.console, self.client
        _heading(console, "Requests")
        clips = f"on clips of seed {HELD_OUT_SEED}, through the dispatcher"
        console.print(f"  {REQUESTS_PER_QUERY} per query, {clips}")
        serving = [q for q in self.queries.values() if q.phase is QueryPhase.SERVING]
        done = {query.id: 0 for query in serving}
        with Follow(console) as lines:

            def tell(query_id: str, count: int) -> None:
                done[query_id] = count
                every = REQUESTS_PER_QUERY
                told = {i: (str(n == every), f"{n} of {every} requests") for i, n in done.items()}
                lines.update(self._named(told))

            # One query after the other: this computer's few cores stand for many machines, and
            # requests side by side would slow each other down as they would not on those.
            observed = [
                send(client, query.id, REQUESTS_PER_QUERY, tell, seed=HELD_OUT_SEED)
                for query in serving
            ]
        served = []
        for query, found in zip(serving, observed, strict=True):
            name, plan = self.cases[query.id].name, client.plan(query.plan_id or "")
            console.print(Text(name, style="bold"))
            console.print(tables.deployment_table(client.deployment(query.id)))
            served.append(ServedQuery(name=name, query=query, plan=plan, observed=found))
        console.print(*comparison(served), sep="\n")
        return served

    def _named(self, lines: Mapping[str, tuple[str, str]]) -> dict[str, tuple[str, str]]:
        """Give lines by the names of queries, in a column, in place of their ids."""
        return {f"{self.cases[each].name:<10}": line for each, line in lines.items()}


def _key(query: QueryView) -> str:
    progress = query.progress
    best = progress.best.id if progress is not None and progress.best is not None else ""
    return f"{query.phase} {best}"


def _heading(console: Console, text: str) -> None:
    console.print()
    console.print(Rule(text, align="left"))
