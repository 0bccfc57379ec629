"""`circinus route`: weights of deployment units, served routes, verified outputs."""

from __future__ import annotations

import json
from itertools import chain
from pathlib import Path
from typing import Annotated

from rich.console import RenderableType
from typer import Argument, Option

from circinus.api.cli.command import ExitCode, leave
from circinus.api.cli.kubernetes.route_cluster import FollowOptions, follow_in_cluster
from circinus.api.cli.options import INPUT, MetricName, RouteFile, pairs, probes_here, read_route
from circinus.api.cli.serving import input_of
from circinus.api.client import Client
from circinus.api.schemas.deployments import RequestBody
from circinus.api.schemas.routes import (
    RegimeTrafficView,
    RouteView,
    RouteWeightsView,
    UnitStatusView,
    VerifiedUnitView,
)
from circinus.api.schemas.violations import checked
from circinus.api.text import formats, tables
from circinus.api.text.screen import Screen
from circinus.pipelines import checks

_WEIGHT_COLUMNS = ("unit", "wanted", "weight", "requests/s", "busy")


def weights(
    screen: Screen,
    file: RouteFile,
    method: Annotated[
        str, Option(help="carried: by what units can do; or published, by their price.")
    ] = "carried",
) -> None:
    """Print numbers and traffic weights of a route's deployment units, in both regimes, and why.

    Nothing is deployed. Ends with 3 if the available capacity does not suffice.
    """
    # a solver, that no other command should wait for
    from circinus.api.use_cases.routes import weighed
    from circinus.scheduler.routing.traffic import RouteMethod

    checks.among("--method", method, [*RouteMethod])
    view = weighed(read_route(file).route, RouteMethod(method))
    screen.show(*_weight_lines(view), document=view)
    leave(ExitCode.OK if view.feasible else ExitCode.INFEASIBLE)


def _weight_lines(view: RouteWeightsView) -> list[RenderableType]:
    lines: list[RenderableType] = [
        f"{view.name}, {view.demand_per_s:g} requests/s: {view.regime.value} mode, {view.why}",
        *(f"left out: {each}" for each in view.left_out),
        *chain.from_iterable(map(_regime, view.regimes)),
    ]
    least = f"less than {formats.dollars(view.least_usd_per_hour)}, parts of units allowed."
    if view.least_usd_per_hour is None:
        return [*lines, "What can be had is too little for the demand."]
    return [*lines, f"No numbers of what can be had cost {least}"]


def _regime(of: RegimeTrafficView) -> list[RenderableType]:
    latency = "" if of.latency_s is None else f", mean latency {formats.seconds(of.latency_s)}"
    rows = (
        (
            unit.name,
            str(unit.units),
            f"{unit.weight:.3f}",
            f"{unit.per_s:.1f}",
            formats.UNKNOWN if unit.busy is None else f"{unit.busy:.0%}",
        )
        for unit in of.units
    )
    return [
        tables.table(
            f"{of.regime.value.capitalize()} mode", *_WEIGHT_COLUMNS, right=(1, 2, 3, 4), rows=rows
        ),
        f"{formats.dollars(of.usd_per_hour)}, {formats.per_1000(of.usd_per_1000)}, "
        f"{of.served_per_s:.4g} of {of.supply_per_s:.4g} requests/s{latency}",
    ]


RouteName = Annotated[str, Argument(metavar="NAME", help="Name of a route.")]
_UNIT_COLUMNS = ("unit", "weight", "part now", "workers", "can be had", "sent", "score", "")


def apply(
    screen: Screen,
    client: Client,
    file: RouteFile,
    cluster: Annotated[bool, "Write its objects to a Kubernetes cluster instead."] = False,
    *,
    options: FollowOptions,
) -> None:
    """Let the service serve a route by workers of its units, or update a served one.

    A unit takes traffic once its outputs are verified. In a cluster (--cluster) units are
    Deployments of yours, and `route follow` moves their traffic from then on.
    """
    if cluster:
        follow_in_cluster(screen, read_route(file), options, once=True)
    else:
        _show_route(screen, client.set_route(read_route(file)))


def status(
    screen: Screen,
    client: Client,
    name: Annotated[str | None, Argument(metavar="[NAME]", help="Of one; else of all.")] = None,
) -> None:
    """Show which mode a route is in and why, and its units: traffic, workers, what they lack."""
    if name is not None:
        _show_route(screen, client.route(name))
        return
    view = client.routes()
    lines = [line for each in view.items for line in _status_lines(each)]
    screen.show(*(lines or ["no routes"]), document=view)


def request(
    screen: Screen,
    client: Client,
    name: RouteName,
    input_text: Annotated[str, INPUT],
    timeout: Annotated[float, "Seconds to wait for the answer."] = 30.0,
) -> None:
    """Send one request to a route."""
    body = {"timeout_s": timeout, "input": input_of(input_text)}
    reply = client.ask_route(name, checked(RequestBody, body))
    lines = [
        f"output   {json.dumps(reply.output, ensure_ascii=False)}",
        f"latency  {formats.seconds(reply.latency_s)}, by {', '.join(reply.tier_s)}",
    ]
    screen.show(*lines, document=reply)


def remove(screen: Screen, client: Client, name: RouteName) -> None:
    """End a route and its workers."""
    client.drop_route(name)
    screen.show(f"{name}: removed", document={"removed": name})


def _show_route(screen: Screen, view: RouteView) -> None:
    screen.show(*_status_lines(view), document=view)


def _status_lines(of: RouteView) -> list[RenderableType]:
    if of.status is None:
        return [f"{of.name}: not served, {of.problem or 'it is being started'}"]
    state = of.status
    lines: list[RenderableType] = [
        f"{of.name}: {state.regime.value} mode for {formats.seconds(state.for_s)}, {state.why}",
        tables.table(
            None, *_UNIT_COLUMNS, right=(1, 2, 3, 4, 5, 6), rows=map(_unit_row, state.units)
        ),
    ]
    minute = next(iter(state.lately), None)
    if minute is not None and minute.requests:
        p95 = "" if minute.p95_s is None else f", p95 {formats.seconds(minute.p95_s)}"
        lines.append(
            f"last {minute.span_s:.0f} s: {minute.requests} requests, {minute.in_time} within "
            f"{formats.seconds(of.route.latency_s)}, {minute.failed} failed{p95}"
        )
    return lines


def _unit_row(unit: UnitStatusView) -> tuple[str, ...]:
    score = None if unit.proof is None else unit.proof.score
    return (
        unit.name,
        f"{unit.traffic_weight:.3f}",
        f"{unit.part:.3f}",
        f"{unit.running} of {unit.wanted}",
        "any" if unit.available is None else str(unit.available),
        str(unit.sent),
        formats.fraction(score),
        unit.why,
    )


_VERIFIED_COLUMNS = ("unit", "score", "reference", "difference", "agrees", "failed")


def verify(
    screen: Screen,
    file: RouteFile,
    probes: Annotated[
        Path,
        Option(
            metavar="PROBES",
            help='A line {"input": ..., "expected": ...} each; the input is sent by POST.',
            dir_okay=False,
        ),
    ],
    metric: MetricName = None,
    url: Annotated[
        list[str] | None, Option(metavar="UNIT=URL", help="Default: the unit's Service.")
    ] = None,
    tolerance: Annotated[
        float | None,
        Option(help="That a mean score may be below the first unit's; default: the route's."),
    ] = None,
) -> None:
    """Compare the outputs of a route's units, over HTTP, with those of the first one.

    Sends as many probes as the route sets (verify). Ends with 3 if a unit does not agree, or one
    of its probes failed.
    """
    # what sends them, that no other command should wait for
    from circinus.api.use_cases.route_files import unit_urls, verified

    route = read_route(file)
    terms = route.verify
    if tolerance is not None:
        checks.probability("--tolerance", tolerance)
        terms = terms.model_copy(update={"tolerance": tolerance})
    urls = unit_urls(route, pairs("--url", url, "must be UNIT=URL, each unit once"))
    probe_set = probes_here(probes, metric, terms)
    units = verified(urls, probe_set)
    screen.show(
        tables.table(
            f"{route.name}: {len(probe_set.examples)} probes, tolerance {probe_set.tolerance:g}",
            *_VERIFIED_COLUMNS,
            right=(1, 2, 3),
            rows=map(_verified_row, units),
        ),
        document={"name": route.name, "probes": len(probe_set.examples), "units": units},
    )
    leave(ExitCode.OK if all(unit.agrees for unit in units) else ExitCode.INFEASIBLE)


def _verified_row(unit: VerifiedUnitView) -> tuple[str, ...]:
    score, difference = unit.score, unit.difference
    known = score is not None or unit.reference != unit.name
    return (
        unit.name,
        formats.fraction(score),
        f"{unit.reference} {unit.reference_score:.3f}" if known else formats.UNKNOWN,
        formats.UNKNOWN if difference is None else f"{difference:+.3f}",
        "yes" if unit.agrees else "no",
        unit.failed,
    )
