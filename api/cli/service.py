"""`circinus serve`."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from pydantic import ValidationError

from api.cli.command import command
from api.cli.screen import Screen
from api.query_file import read_infrastructure
from api.schemas import faults_of
from api.settings import Settings
from pipelines.errors import InvalidInput


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
) -> None:
    """Run the service until it is interrupted.

    An option left out is read from the environment: CIRCINUS_HOST for --host and so on; the
    token is CIRCINUS_TOKEN. The service logs events to stderr, one JSON object a line.
    """
    from api.app import serve as run  # the whole service behind it: only when asked to

    settings = _settings(
        host=host,
        port=port,
        database_url=database_url,
        infrastructure=infrastructure,
        planning_workers=planning_workers,
    )
    tiers = read_infrastructure(settings.infrastructure)
    address = f"http://{settings.host}:{settings.port}"
    if screen.as_json:
        screen.json({"address": address, "infrastructure": tiers.name})
    screen.note(f"Circinus at {address}, infrastructure {tiers.name}; its pages are at /docs")
    run(settings)


def _settings(**options: Any) -> Settings:  # noqa: ANN401 - checked by Settings
    given = {name: value for name, value in options.items() if value is not None}
    try:
        return Settings(**given)
    except ValidationError as error:
        raise InvalidInput(faults_of(error, model=Settings)) from error
