"""Commands about what a service runs: the schedule, requests, undeployment."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from api.cli.command import command
from api.cli.options import DEFAULT_URL, QueryId, Token, Url, connect
from api.cli.screen import Screen
from api.rendering import formats
from api.rendering.tables import schedule_table, tiers_table
from api.schemas import RequestBody, RequestReply, faults_of
from pipelines.errors import InvalidInput


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    command(app, "schedule")(schedule)
    command(app, "capacity")(capacity)
    command(app, "request")(request)
    command(app, "undeploy")(undeploy)


def schedule(screen: Screen, url: Url = DEFAULT_URL, token: Token = None) -> None:
    """Show which queries are admitted, with which plan, on which machines."""
    with connect(url, token) as client:
        found = client.schedule()
    screen.show(schedule_table(found), document=found)


def capacity(
    screen: Screen,
    changes: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TIER=N]...", help="Machines of a tier; TIER=stated undoes it."),
    ] = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
) -> None:
    """Show the machines of every tier, or let some come or go."""
    machines = _machines(changes or [])
    with connect(url, token) as client:
        found = client.set_machines(machines) if machines else client.infrastructure()
    screen.show(tiers_table(found), document=found)


def request(
    screen: Screen,
    query_id: QueryId,
    example: Annotated[
        int | None, typer.Option("--example", help="Send this example of the pipeline.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the examples.")] = 0,
    input_text: Annotated[
        str | None,
        typer.Option("--input", metavar="JSON", help="Send this input; @FILE reads a file."),
    ] = None,
    timeout_s: Annotated[
        float, typer.Option("--timeout", help="Seconds to wait for the answer.")
    ] = 30.0,
    url: Url = DEFAULT_URL,
    token: Token = None,
) -> None:
    """Send one request to the deployed plan of a query."""
    body: dict[str, Any] = {"timeout_s": timeout_s}
    if input_text is not None:
        body["input"] = _input(input_text)
    if example is not None:
        body["example"] = {"index": example, "seed": seed}
    try:
        checked = RequestBody.model_validate(body)
    except ValidationError as error:
        raise InvalidInput(faults_of(error, model=RequestBody)) from error
    with connect(url, token) as client:
        reply = client.request(query_id, checked)
    screen.show(*_lines(reply), document=reply)


def undeploy(
    screen: Screen, query_id: QueryId, url: Url = DEFAULT_URL, token: Token = None
) -> None:
    """Retire a query and free its capacity."""
    with connect(url, token) as client:
        query = client.undeploy(query_id)
    screen.show(f"{query.id}: {query.phase.value}", document=query)


def _machines(changes: list[str]) -> dict[str, int | None]:
    machines: dict[str, int | None] = {}
    for change in changes:
        tier, _, number = change.partition("=")
        asked = number == "stated" or (number.isascii() and number.isdecimal())
        if not asked or tier in machines:
            rule = "must be TIER=N or TIER=stated, each tier once"
            raise InvalidInput.of("TIER=N", rule, change)
        machines[tier] = None if number == "stated" else int(number[:12])
    return machines


def _input(text: str) -> object:
    try:
        if text.startswith("@"):
            text = Path(text[1:]).read_text(encoding="utf-8")
        return json.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidInput.of("--input", f"must be JSON or @FILE ({error})", text) from error


def _lines(reply: RequestReply) -> list[str]:
    emulated = " (emulated tiers or links on the way)" if reply.emulated else ""
    lines = [
        f"output   {json.dumps(reply.output, ensure_ascii=False)}",
        f"latency  {formats.seconds(reply.latency_s)}{emulated}",
    ]
    if reply.score is not None:
        lines.append(f"score    {formats.fraction(reply.score)}")
    times = ", ".join(f"{name} {formats.seconds(s)}" for name, s in reply.operator_s.items())
    if times:
        lines.append(f"of this  {times}; transfers {formats.seconds(reply.transfer_s)}")
    return lines
