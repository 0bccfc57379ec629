"""The demo: a service of its own plans, deploys and serves queries of `digits` over HTTP.

Everything shown comes from the service's answers; nothing is kept when the demo ends.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from rich.console import Console
from rich.rule import Rule
from rich.text import Text

from api.client import Client
from api.demo.cases import (
    HELD_OUT_SEED,
    INPUTS,
    PIPELINE,
    PLANNING_SEED,
    Case,
    cases,
    demo_infrastructure,
)
from api.demo.report import Report, Served, comparison, problems_of
from api.demo.service import running_service
from api.demo.traffic import Observed, send
from api.phases import UNFINISHED, Phase
from api.rendering import formats
from api.rendering.live import Follow
from api.rendering.tables import (
    deployment_table,
    plans_table,
    progress_line,
    schedule_table,
    shortfall_text,
    tiers_table,
)
from api.schemas import MethodView, QueryView
from deploy.methods import Method
from pipelines.clock import Clock, SystemClock
from pipelines.infrastructure import Infrastructure

REQUESTS_PER_QUERY = 68
_PLANNED_WITHIN_S = 120.0
_DEPLOYED_WITHIN_S = 60.0
_POLL_S = 0.25
_MOST_PLANS = 4
_BEFORE_DEPLOYMENT = frozenset({Phase.QUEUED, Phase.PLANNING})

Calibrate = Callable[[Infrastructure, str, int], Infrastructure]
"""Gives an infrastructure with measured speeds: of a pipeline by name, on samples of a seed."""
Submitted = Mapping[str, Case]
"""Query id -> case."""


def run(console: Console, calibrated: Calibrate, method: Method | None = None) -> Report:
    """Run the demo; leaves nothing behind, also when interrupted.

    Args:
        console: To show it on.
        calibrated: Measures how fast this computer serves.
        method: Of the service; None: as the environment says.
    """
    clock = SystemClock()
    start = clock.now()
    with _terminated_like_interrupted():
        _heading(console, "How fast this computer serves")
        infrastructure = calibrated(demo_infrastructure(), PIPELINE, PLANNING_SEED)
        console.print(_speed_line(infrastructure))
        with running_service(infrastructure, clock, method) as client:
            told = client.method()
            served, problems = _run(console, client, told, clock)
    report = Report(served=served, problems=problems, elapsed_s=clock.now() - start, method=told)
    _conclude(console, report)
    return report


def _run(
    console: Console, client: Client, method: MethodView, clock: Clock
) -> tuple[list[Served], list[str]]:
    """Give the queries that were served, and what did not work, in words."""
    _show_service(console, client, method)
    submitted = _submit(console, client)
    queries = _wait(console, client, submitted, clock)
    problems = list(_unexpected(queries, submitted))
    _show_plans(console, client, queries, submitted)
    served = _serve(console, client, queries, submitted)
    return served, [*problems, *problems_of(served)]


def _show_service(console: Console, client: Client, method: MethodView) -> None:
    _heading(console, "A service on this computer")
    console.print(f"  {client.base_url}, started for this demo")
    planned, scheduled, dispatched = formats.method(method)
    console.print(f"  Queries are {planned},\n  {scheduled}, {dispatched}.")
    console.print(tiers_table(client.infrastructure()))


def _speed_line(infrastructure: Infrastructure) -> str:
    """Say what serving makes of the seconds that are profiled."""
    as_is = next(tier for tier in infrastructure.tiers if not tier.emulated)
    slower = 1 / as_is.speed_factor
    return (
        f"  In served requests, operators take {slower:.2f} times as long as in a profile,\n"
        "  each its own: measured on a worker like those that serve, and planned with."
    )


def _submit(console: Console, client: Client) -> Submitted:
    _heading(console, "Four queries, unlike objectives")
    console.print(f"  Planned on {INPUTS} clips of seed {PLANNING_SEED}.")
    submitted = {}
    for case in cases():
        query = client.submit(case.request)
        submitted[query.id] = case
        console.print(
            f"  {case.name:<12}{query.id}  {formats.objectives(case.request)}", soft_wrap=True
        )
    return submitted


def _wait(
    console: Console, client: Client, submitted: Submitted, clock: Clock
) -> Mapping[str, QueryView]:
    """Give the queries once each is served or can no longer be."""
    _heading(console, "Planning and deployment")
    deadline = clock.now() + _PLANNED_WITHIN_S + _DEPLOYED_WITHIN_S
    with Follow(console) as lines:
        while True:
            queries = {query_id: client.query(query_id) for query_id in submitted}
            lines.update(
                {
                    f"{submitted[query_id].name:<10}": (_key(query), progress_line(query))
                    for query_id, query in queries.items()
                }
            )
            if all(_settled(query) for query in queries.values()) or clock.now() > deadline:
                return queries
            clock.sleep(_POLL_S)


def _settled(query: QueryView) -> bool:
    return query.phase is Phase.SERVING or query.phase not in UNFINISHED


def _key(query: QueryView) -> str:
    progress = query.progress
    best = progress.best.id if progress is not None and progress.best is not None else ""
    return f"{query.phase} {best}"


def _unexpected(queries: Mapping[str, QueryView], submitted: Submitted) -> Iterator[str]:
    for query_id, query in queries.items():
        case = submitted[query_id]
        if query.phase is not case.ends:
            told = f": {query.message}" if query.message else ""
            yield f"{case.name} is {query.phase.value}, should be {case.ends.value}{told}"
        elif query.phase is Phase.INFEASIBLE and (
            query.shortfall is None or not query.shortfall.binding
        ):
            yield f"{case.name} is infeasible, but what binds is not told"


def _show_plans(
    console: Console, client: Client, queries: Mapping[str, QueryView], submitted: Submitted
) -> None:
    _heading(console, "Plans: no other is better in cost, latency, accuracy and demand at once")
    for query_id, query in queries.items():
        name = submitted[query_id].name
        if query.shortfall is not None:
            console.print(Text(f"{name}: {query.phase.value}", style="bold"))
            console.print(shortfall_text(query.shortfall))
            continue
        found = client.plans(query_id).items
        title = f"{name}: {formats.objectives(query.request)}"
        console.print(plans_table(found, title=title, chosen=query.plan_id, most=_MOST_PLANS))
    _heading(console, "Which plan runs where")
    names = {query_id: case.name for query_id, case in submitted.items()}
    console.print(schedule_table(client.schedule(), names))


def _serve(
    console: Console, client: Client, queries: Mapping[str, QueryView], submitted: Submitted
) -> list[Served]:
    serving = [query_id for query_id, query in queries.items() if query.phase is Phase.SERVING]
    _heading(console, "Requests")
    console.print(
        f"  {REQUESTS_PER_QUERY} per query, on clips of seed {HELD_OUT_SEED}, "
        "through the dispatcher"
    )
    observed = _send(console, client, serving, submitted)
    for query_id in serving:
        console.print(Text(submitted[query_id].name, style="bold"))
        console.print(deployment_table(client.deployment(query_id)))
    served = [
        Served(
            case=submitted[query_id],
            query=queries[query_id],
            plan=client.plan(queries[query_id].plan_id or ""),
            observed=observed[query_id],
        )
        for query_id in serving
    ]
    for part in comparison(served):
        console.print(part)
    return served


def _send(
    console: Console, client: Client, serving: list[str], submitted: Submitted
) -> Mapping[str, Observed]:
    done = dict.fromkeys(serving, 0)
    with Follow(console) as lines:

        def tell(query_id: str, count: int) -> None:
            done[query_id] = count
            lines.update(
                {
                    f"{submitted[name].name:<10}": (
                        str(number == REQUESTS_PER_QUERY),
                        f"{number} of {REQUESTS_PER_QUERY} requests",
                    )
                    for name, number in done.items()
                }
            )

        return send(client, serving, REQUESTS_PER_QUERY, tell)


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
