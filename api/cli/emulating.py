"""The command about the network that a service imitates."""

from __future__ import annotations

from typing import Annotated

import typer
from pydantic import ValidationError

from api.cli.command import command
from api.cli.options import DEFAULT_URL, Token, Url, connect
from api.cli.screen import Screen
from api.rendering.tables import links_table
from api.schemas import EmulationBody, faults_of
from pipelines.errors import InvalidInput

_FORM = "TIER,TIER=MBIT/S[,DELAY_S]"


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    command(app, "emulate")(emulate)


def emulate(
    screen: Screen,
    links: Annotated[
        list[str] | None,
        typer.Argument(metavar=f"[{_FORM}]...", help="Emulated links, as they are from now on."),
    ] = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
) -> None:
    """Show the links that are imitated, or change some; plans do not hear of it."""
    body = _body(links) if links else None
    with connect(url, token) as client:
        found = client.emulation() if body is None else client.set_emulation(body)
    screen.show(links_table(found), document=found)


def _body(links: list[str]) -> EmulationBody:
    try:
        return EmulationBody.model_validate({"links": [_link(link) for link in links]})
    except ValidationError as error:
        raise InvalidInput(faults_of(error, model=EmulationBody)) from error


def _link(text: str) -> dict[str, object]:
    ends, _, figures = text.partition("=")
    rate, comma, delay = figures.partition(",")
    try:
        return {
            "between": ends.split(","),
            "bandwidth_mbit_per_s": float(rate),
            "delay_s": float(delay) if comma else 0.0,
        }
    except ValueError as error:
        raise InvalidInput.of(_FORM, f"must be {_FORM}", text) from error
