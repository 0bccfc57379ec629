"""`circinus serve`."""

from __future__ import annotations

from typing import Annotated

import typer

from api.cli.command import command
from api.cli.environment import settings_with
from api.cli.options import MethodName
from api.cli.screen import Screen
from api.query_file import read_infrastructure
from api.rendering import formats
from api.schemas import method_view


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    command(app, "serve")(serve)


def serve(
    screen: Screen,
    host: Annotated[str | None, typer.Option("--host", help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option("--port", help="Port to listen on.")] = None,
    database_url: Annotated[
        str | None, typer.Option("--database-url", help="Where state lives.", metavar="URL")
    ] = None,
    infrastructure: Annotated[
        str | None, typer.Option("--infrastructure", help="YAML file or preset to plan for.")
    ] = None,
    planning_workers: Annotated[
        int | None, typer.Option("--planning-workers", help="Processes that plan.")
    ] = None,
    method: MethodName = None,
) -> None:
    """Run the service until it is interrupted.

    An option left out is read from the environment: CIRCINUS_HOST for --host and so on; the
    token is CIRCINUS_TOKEN. The service logs events to stderr, one JSON object a line.
    """
    from api.app import serve as run  # the whole service behind it: only when asked to

    settings = settings_with(
        host=host,
        port=port,
        database_url=database_url,
        infrastructure=infrastructure,
        planning_workers=planning_workers,
        method=method,
    )
    chosen = method_view(settings.chosen_method)
    tiers = read_infrastructure(settings.infrastructure)
    address = f"http://{settings.host}:{settings.port}"
    if screen.as_json:
        told = {"address": address, "infrastructure": tiers.name}
        screen.json({**told, "method": chosen.model_dump(mode="json")})
    screen.note(f"Circinus at {address}, infrastructure {tiers.name}; its pages are at /docs")
    screen.note(f"queries are {', '.join(formats.method(chosen))}")
    run(settings)
