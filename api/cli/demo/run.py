"""The demo: a service of its own plans, deploys and serves queries of `digits` over HTTP.

Everything shown comes from the service's answers; nothing is kept when the demo ends.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.rule import Rule
from rich.text import Text

from circinus.api.bootstrap.calibration import CalibrationSampling, calibrated_infrastructure
from circinus.api.cli.demo.cases import (
    CASES,
    HELD_OUT_SEED,
    INPUTS,
    PIPELINE,
    PLANNING_SEED,
    DemoCase,
    demo_infrastructure,
)
from circinus.api.cli.demo.report import Report, ServedQuery, comparison, problems_of
from circinus.api.cli.demo.service import running_service
from circinus.api.cli.demo.traffic import send
from circinus.api.cli.rendering import formats
from circinus.api.cli.rendering.tables import (
    deployment_table,
    plans_table,
    progress_line,
    schedule_table,
    shortfall_text,
    tiers_table,
)
from circinus.api.cli.screen import Follow
from circinus.api.client import Client
from circinus.api.phases import UNFINISHED, QueryPhase
from circinus.api.schemas.progress import QueryView
from circinus.deploy.methods import Method
from circinus.deploy.profiling.calibration import CalibrationSettings
from circinus.pipelines.clock import Clock, SystemClock
from circinus.pipelines.infrastructure import Infrastructure
from circinus.pipelines.registry import load_pipeline

REQUESTS_PER_QUERY = 68
_SETTLED_WITHIN_S = 180.0
_POLL_S = 0.25
_MOST_PLANS = 4
_SAMPLING = CalibrationSampling(configurations=4, inputs=2, seed=PLANNING_SEED)
_CALIBRATION = CalibrationSettings(repetitions=5, pause_s=0.03)
"""Seconds, not minutes: enough to tell served from profiled, see `circinus calibrate`."""


def run(console: Console, method: Method | None = None) -> Report:
    """Run the demo; leaves nothing behind, also when interrupted.

    Args:
        console: To show it on.
        method: Of the service; None: as the environment says.
    """
    clock = SystemClock()
    start = clock.now()
    with _terminated_like_interrupted():
        infrastructure = _calibrated(console)
        with running_service(infrastructure, clock, method) as client:
            demo = _Demo(console, client)
            demo.introduce()
            demo.submit()
            demo.wait(clock)
            problems = list(demo.unexpected())
            demo.show_plans()
            served = demo.serve()
    report = Report(
        served=served,
        problems=[*problems, *problems_of(served)],
        elapsed_s=clock.now() - start,
        method=demo.method,
    )
    _conclude(console, report)
    return report


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


class _Demo:
    """The queries of the demo at a service, step by step; each step shows what it found.

    Attributes:
        method: How the service plans, schedules and dispatches.
    """

    def __init__(self, console: Console, client: Client) -> None:
        self._console, self._client = console, client
        self._submitted: dict[str, DemoCase] = {}
        self._queries: Mapping[str, QueryView] = {}
        self.method = client.method()

    def introduce(self) -> None:
        """Show the service."""
        _heading(self._console, "A service on this computer")
        self._console.print(f"  {self._client.base_url}, started for this demo")
        planned, scheduled, dispatched = formats.method(self.method)
        self._console.print(f"  Queries are {planned},\n  {scheduled}, {dispatched}.")
        self._console.print(tiers_table(self._client.infrastructure()))

    def submit(self) -> None:
        """Submit the queries."""
        _heading(self._console, "Four queries, unlike objectives")
        self._console.print(f"  Planned on {INPUTS} clips of seed {PLANNING_SEED}.")
        for case in CASES:
            query = self._client.submit(case.request)
            self._submitted[query.id] = case
            line = f"  {case.name:<12}{query.id}  {formats.objectives(case.request)}"
            self._console.print(line, soft_wrap=True)

    def wait(self, clock: Clock) -> None:
        """Return once each query is served or can no longer be."""
        _heading(self._console, "Planning and deployment")
        deadline = clock.now() + _SETTLED_WITHIN_S
        with Follow(self._console) as lines:
            while True:
                self._queries = {each: self._client.query(each) for each in self._submitted}
                lines.update(
                    {
                        f"{self._submitted[query_id].name:<10}": (
                            _key(query),
                            progress_line(query),
                        )
                        for query_id, query in self._queries.items()
                    }
                )
                if all(map(_is_settled, self._queries.values())) or clock.now() > deadline:
                    return
                clock.sleep(_POLL_S)

    def unexpected(self) -> Iterator[str]:
        """Give what did not become of the queries, in words."""
        for query_id, query in self._queries.items():
            case = self._submitted[query_id]
            if query.phase is not case.ends:
                told = f": {query.message}" if query.message else ""
                yield f"{case.name} is {query.phase.value}, should be {case.ends.value}{told}"
            elif query.phase is QueryPhase.INFEASIBLE and (
                query.shortfall is None or not query.shortfall.binding
            ):
                yield f"{case.name} is infeasible, but what binds is not told"

    def show_plans(self) -> None:
        """Show the plans of every query, and which of them the schedule chose."""
        console = self._console
        title = "Plans: no other is better in cost, latency, accuracy and demand at once"
        _heading(console, title)
        names = {query_id: case.name for query_id, case in self._submitted.items()}
        for query_id, query in self._queries.items():
            if query.shortfall is not None:
                console.print(Text(f"{names[query_id]}: {query.phase.value}", style="bold"))
                console.print(shortfall_text(query.shortfall))
                continue
            found = self._client.plans(query_id).items
            title = f"{names[query_id]}: {formats.objectives(query.request)}"
            console.print(plans_table(found, title=title, chosen=query.plan_id, most=_MOST_PLANS))
        _heading(console, "Which plan runs where")
        console.print(schedule_table(self._client.schedule(), names))

    def serve(self) -> list[ServedQuery]:
        """Send requests to what serves; give what they found."""
        console, client = self._console, self._client
        _heading(console, "Requests")
        console.print(
            f"  {REQUESTS_PER_QUERY} per query, on clips of seed {HELD_OUT_SEED}, "
            "through the dispatcher"
        )
        serving = [q for q in self._queries.values() if q.phase is QueryPhase.SERVING]
        done = {query.id: 0 for query in serving}
        with Follow(console) as lines:

            def tell(query_id: str, count: int) -> None:
                done[query_id] = count
                told = {
                    each: (str(n == REQUESTS_PER_QUERY), f"{n} of {REQUESTS_PER_QUERY} requests")
                    for each, n in done.items()
                }
                lines.update(self._named(told))

            # One query after the other: this computer's few cores stand for many machines, and
            # requests side by side would slow each other down as they would not on those.
            observed = [
                send(client, query.id, REQUESTS_PER_QUERY, tell, seed=HELD_OUT_SEED)
                for query in serving
            ]
        for query in serving:
            console.print(Text(self._submitted[query.id].name, style="bold"))
            console.print(deployment_table(client.deployment(query.id)))
        served = [
            ServedQuery(
                name=self._submitted[query.id].name,
                query=query,
                plan=client.plan(query.plan_id or ""),
                observed=found,
            )
            for query, found in zip(serving, observed, strict=True)
        ]
        for part in comparison(served):
            console.print(part)
        return served

    def _named(self, lines: Mapping[str, tuple[str, str]]) -> dict[str, tuple[str, str]]:
        """Give lines by the names of queries, in a column, in place of their ids."""
        return {f"{self._submitted[each].name:<10}": line for each, line in lines.items()}


def _is_settled(query: QueryView) -> bool:
    return query.phase is QueryPhase.SERVING or query.phase not in UNFINISHED


def _key(query: QueryView) -> str:
    progress = query.progress
    best = progress.best.id if progress is not None and progress.best is not None else ""
    return f"{query.phase} {best}"


def _conclude(console: Console, report: Report) -> None:
    if report.worked:
        text = "Everything worked and was stopped again"
        console.print(Text(f"{text} ({report.elapsed_s:.0f} s).", style="bold green"))
        return
    console.print(Text("This did not work:", style="bold red"))
    for problem in report.problems:
        console.print(f"  {problem}", soft_wrap=True)


def _heading(console: Console, text: str) -> None:
    console.print()
    console.print(Rule(text, align="left"))


@contextmanager
def _terminated_like_interrupted() -> Iterator[None]:
    """Let SIGTERM end the demo as Ctrl-C does: in order."""
    before = signal.getsignal(signal.SIGTERM)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
