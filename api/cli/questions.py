"""Questions about queries of a service that measurements answer: why, and what if."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import RenderableType

from circinus.api.cli.options import QueryId
from circinus.api.cli.queries import show_phase
from circinus.api.cli.rendering.tables import explanation_parts, plans_table, shortfall_text
from circinus.api.cli.screen import Screen
from circinus.api.client import Client
from circinus.api.schemas.explanation import ReplanBody, ReplanData, WhatIfBody
from circinus.pipelines.errors import InvalidInput

_FORM = "0.8x, +2, -2 or 5"
Accuracy = Annotated[str, typer.Option("--accuracy", help=f"Other accuracy SLO: {_FORM}.")]
Latency = Annotated[str, typer.Option("--latency", help=f"Other latency SLO in seconds: {_FORM}.")]
Cost = Annotated[str, typer.Option("--cost", help=f"Other cost SLO in USD per hour: {_FORM}.")]
Pairs = list[str] | None


def explain(
    screen: Screen,
    client: Client,
    plan_id: Annotated[str, typer.Argument(metavar="PLAN", help="Id of a plan.")],
) -> None:
    """Say why a plan is what it is: what operators take and cost, and what was ruled out."""
    found = client.explanation(plan_id)
    screen.show(*explanation_parts(found), document=found)


def whatif(
    screen: Screen,
    client: Client,
    query_id: QueryId,
    accuracy: Accuracy = "",
    latency: Latency = "",
    cost: Cost = "",
    price: Annotated[Pairs, typer.Option(help="Other price of a tier, such as cloud=2x.")] = None,
    machines: Annotated[
        Pairs, typer.Option(help="Other number of machines, such as edge=-2.")
    ] = None,
    speed: Annotated[
        Pairs, typer.Option(help="Other speed of a tier, such as device=0.5x.")
    ] = None,
    bandwidth: Annotated[
        Pairs, typer.Option(help="Other Mbit/s of a link, such as device-edge=0.1x.")
    ] = None,
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
    found = client.what_if(query_id, body)
    parts: list[RenderableType] = [found.words]
    if found.after:
        parts.append(plans_table(found.after, title="Plans as they would be", most=5))
    if found.shortfall is not None:
        parts.append(shortfall_text(found.shortfall))
    screen.show(*parts, document=found)


def replan(
    screen: Screen,
    client: Client,
    query_id: QueryId,
    accuracy: Accuracy = "",
    latency: Latency = "",
    cost: Cost = "",
    examples: Annotated[
        int | None, typer.Option(help="Number of examples to profile on instead.")
    ] = None,
    examples_seed: Annotated[int, typer.Option(help="Of those examples.")] = 0,
) -> None:
    """Plan a query again for other objectives or data, with what is known of it."""
    data = None if examples is None else ReplanData(examples=examples, seed=examples_seed)
    body = ReplanBody(accuracy=accuracy, latency=latency, cost=cost, data=data)
    show_phase(screen, client.replan(query_id, body))


def _pairs(option: str, pairs: Pairs) -> dict[str, str]:
    told: dict[str, str] = {}
    for pair in pairs or ():
        name, equals, value = pair.partition("=")
        if not (name and equals and value) or name in told:
            raise InvalidInput.of(option, f"must be NAME=CHANGE once per name ({_FORM})", pair)
        told[name] = value
    return told
