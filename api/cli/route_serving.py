"""`circinus route apply`, `status`, `request`, `remove`: routes that a service serves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

from rich.console import RenderableType
from typer import Argument, Option

from circinus.api.cli.route_cluster import FollowOptions, cluster_file, follow_in_cluster
from circinus.api.cli.serving import given_input
from circinus.api.client import Client
from circinus.api.query_file import read_document
from circinus.api.schemas.deployments import RequestBody
from circinus.api.schemas.routes import RouteInput, RouteView, UnitStatusView
from circinus.api.schemas.violations import checked
from circinus.api.text import formats, tables
from circinus.api.text.screen import Screen

RouteName = Annotated[str, Argument(metavar="NAME", help="Name of a route.")]
_COLUMNS = ("unit", "weight", "part now", "workers", "can be had", "sent", "score", "")


def apply(
    screen: Screen,
    client: Client,
    file: Annotated[Path, Argument(metavar="FILE", help="YAML of a route.", dir_okay=False)],
    cluster: Annotated[bool, "Write its objects to a Kubernetes cluster instead."] = False,
    *,
    options: FollowOptions,
) -> None:
    """Let the service serve a route by workers of its units, or as the file says it now.

    A unit takes traffic once its outputs are verified. In a cluster (--cluster) units are
    Deployments of yours, and `route follow` moves their traffic from then on.
    """
    if cluster:
        follow_in_cluster(screen, cluster_file(file), options, once=True)
    else:
        _show(screen, client.set_route(checked(RouteInput, read_document(file))))


def status(
    screen: Screen,
    client: Client,
    name: Annotated[str | None, Argument(metavar="[NAME]", help="Of one; else of all.")] = None,
) -> None:
    """Show which mode a route is in and why, and its units: traffic, workers, what they lack."""
    if name is not None:
        _show(screen, client.route(name))
        return
    found = client.routes()
    lines = [line for each in found.items for line in _lines(each)]
    screen.show(*(lines or ["no routes"]), document=found)


def request(
    screen: Screen,
    client: Client,
    name: RouteName,
    input_text: Annotated[
        str, Option("--input", metavar="JSON", help="Send this input; @FILE reads a file.")
    ],
    timeout: Annotated[float, "Seconds to wait for the answer."] = 30.0,
) -> None:
    """Send one request to a route."""
    body = {"timeout_s": timeout, "input": given_input(input_text)}
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


def _show(screen: Screen, found: RouteView) -> None:
    screen.show(*_lines(found), document=found)


def _lines(of: RouteView) -> list[RenderableType]:
    if of.status is None:
        return [f"{of.name}: not served, {of.problem or 'it is being started'}"]
    told = of.status
    lines: list[RenderableType] = [
        f"{of.name}: {told.regime.value} mode for {formats.seconds(told.for_s)}, {told.why}",
        tables.table(None, *_COLUMNS, right=(1, 2, 3, 4, 5, 6), rows=map(_row, told.units)),
    ]
    minute = next(iter(told.lately), None)
    if minute is not None and minute.requests:
        p95 = "" if minute.p95_s is None else f", p95 {formats.seconds(minute.p95_s)}"
        lines.append(
            f"last {minute.span_s:.0f} s: {minute.requests} requests, {minute.in_time} within "
            f"{formats.seconds(of.route.latency_s)}, {minute.failed} failed{p95}"
        )
    return lines


def _row(unit: UnitStatusView) -> tuple[str, ...]:
    score = None if unit.proof is None else unit.proof.score
    return (
        unit.name,
        f"{unit.traffic_weight:.3f}",
        f"{unit.part:.3f}",
        f"{unit.running} of {unit.wanted}",
        "any" if unit.available is None else str(unit.available),
        str(unit.sent),
        formats.UNKNOWN if score is None else f"{score:.3f}",
        unit.why,
    )
