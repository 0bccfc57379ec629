"""Questions about queries of a service that measurements answer: why, and what if."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

import typer
from rich.console import RenderableType

from api.cli.command import command
from api.cli.options import DEFAULT_URL, QueryId, Token, Url, connect
from api.cli.screen import Screen
from api.rendering import formats
from api.rendering.tables import plans_table, shortfall_text, table
from api.schemas import ExplanationView, ReplanBody, WhatIfBody
from api.schemas.explanation import ReplanData
from pipelines.errors import InvalidInput

_FORM = "0.8x, +2, -2 or 5"
Accuracy = Annotated[str, typer.Option("--accuracy", help=f"Other accuracy SLO: {_FORM}.")]
Latency = Annotated[str, typer.Option("--latency", help=f"Other latency SLO in seconds: {_FORM}.")]
Cost = Annotated[str, typer.Option("--cost", help=f"Other cost SLO in USD per hour: {_FORM}.")]
Pairs = list[str] | None


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    command(app, "explain")(explain)
    command(app, "whatif")(whatif)
    command(app, "replan")(replan)


def explain(
    screen: Screen,
    plan_id: Annotated[str, typer.Argument(metavar="PLAN", help="Id of a plan.")],
    url: Url = DEFAULT_URL,
    token: Token = None,
) -> None:
    """Say why a plan is what it is: what operators take and cost, and what was ruled out."""
    with connect(url, token) as client:
        found = client.explanation(plan_id)
    screen.show(*_parts(found), document=found)


def whatif(
    screen: Screen,
    query_id: QueryId,
    accuracy: Accuracy = "",
    latency: Latency = "",
    cost: Cost = "",
    price: Annotated[
        Pairs, typer.Option("--price", help="Other price of a tier, such as cloud=2x.")
    ] = None,
    machines: Annotated[
        Pairs, typer.Option("--machines", help="Other number of machines, such as edge=-2.")
    ] = None,
    speed: Annotated[
        Pairs, typer.Option("--speed", help="Other speed of a tier, such as device=0.5x.")
    ] = None,
    bandwidth: Annotated[
        Pairs,
        typer.Option("--bandwidth", help="Other Mbit/s of a link, such as device-edge=0.1x."),
    ] = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
) -> None:
    """Say what other circumstances would do to a query, from what was measured already."""
    body = WhatIfBody(
        accuracy=accuracy,
        latency=latency,
        cost=cost,
        price=_pairs("--price", price),
        machines=_pairs("--machines", machines),
        speed=_pairs("--speed", speed),
        bandwidth=_pairs("--bandwidth", bandwidth),
    )
    with connect(url, token) as client:
        found = client.what_if(query_id, body)
    parts: list[RenderableType] = [found.words]
    if found.after:
        parts.append(plans_table(found.after, title="Plans as they would be", most=5))
    if found.shortfall is not None:
        parts.append(shortfall_text(found.shortfall))
    screen.show(*parts, document=found)


def replan(
    screen: Screen,
    query_id: QueryId,
    accuracy: Accuracy = "",
    latency: Latency = "",
    cost: Cost = "",
    examples: Annotated[
        int | None, typer.Option("--examples", help="Number of examples to profile on instead.")
    ] = None,
    examples_seed: Annotated[int, typer.Option("--examples-seed", help="Of those examples.")] = 0,
    url: Url = DEFAULT_URL,
    token: Token = None,
) -> None:
    """Plan a query again for other objectives or data, with what is known of it."""
    data = None if examples is None else ReplanData(examples=examples, seed=examples_seed)
    body = ReplanBody(accuracy=accuracy, latency=latency, cost=cost, data=data)
    with connect(url, token) as client:
        query = client.replan(query_id, body)
    screen.show(f"{query.id}: {query.phase.value}", document=query)


def _pairs(option: str, pairs: Sequence[str] | None) -> dict[str, str]:
    told: dict[str, str] = {}
    for pair in pairs or ():
        name, equals, value = pair.partition("=")
        if not (name and equals and value) or name in told:
            raise InvalidInput.of(option, f"must be NAME=CHANGE once per name ({_FORM})", pair)
        told[name] = value
    return told


def _parts(found: ExplanationView) -> Iterator[RenderableType]:
    plan = found.plan
    yield (
        f"{plan.id}: {formats.where(plan)}, {formats.dollars(plan.cost_usd_per_hour)}, "
        f"{formats.latency(plan.latency_s)}"
    )
    yield f"planned by {formats.planned_by(found.planning)}"
    made = table(
        "Operators",
        "operator",
        "tier",
        "share",
        "takes",
        "data arrives in",
        "costs",
        "knobs",
        right=[2, 3, 4, 5],
    )
    for part in found.operators:
        made.add_row(
            part.operator,
            part.tier,
            f"{part.share:g}",
            formats.seconds(part.seconds),
            formats.seconds(part.transfer_s),
            formats.dollars(part.cost_usd_per_hour),
            " ".join(f"{knob}={value}" for knob, value in part.knobs.items()),
        )
    yield made
    elsewhere = table("Elsewhere", "operator", "tier", "possible", "because")
    for other in found.alternatives:
        possible = "yes" if other.possible else "no"
        elsewhere.add_row(other.operator, other.tier, possible, other.because)
    if found.alternatives:
        yield elsewhere
    out = table("Ruled out", "by", "configurations", "nearest", right=[1])
    for each in found.ruled_out:
        out.add_row(each.by, str(each.configurations), each.nearest)
    if found.ruled_out:
        yield out
