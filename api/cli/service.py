"""`circinus serve` and `circinus demo`, which starts a service of its own."""

from __future__ import annotations

from typing import Annotated

import typer

from circinus.api.cli.command import ExitCode, leave
from circinus.api.cli.options import MethodName, settings_with
from circinus.api.cli.rendering import formats
from circinus.api.cli.screen import Screen
from circinus.api.query_file import read_infrastructure
from circinus.api.schemas.planning import method_view
from circinus.deploy.methods import method_of


def demo(screen: Screen, method: MethodName = None) -> None:
    """Plan, deploy and serve queries of the built-in pipeline, from start to end."""
    from circinus.api.cli.demo.run import run  # only when asked to

    chosen = None if method is None else method_of(method, "--method")
    report = run(screen.err if screen.as_json else screen.out, chosen)
    if screen.as_json:
        screen.json(report.document())
    leave(ExitCode.OK if report.worked else ExitCode.INTERNAL)


def serve(
    screen: Screen,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on.")] = None,
    database_url: Annotated[
        str | None, typer.Option(help="Where state lives.", metavar="URL")
    ] = None,
    infrastructure: Annotated[
        str | None, typer.Option(help="YAML file or preset to plan for.")
    ] = None,
    planning_workers: Annotated[int | None, typer.Option(help="Processes that plan.")] = None,
    method: MethodName = None,
) -> None:
    """Run the service until it is interrupted.

    An option left out is read from the environment: CIRCINUS_HOST for --host and so on; the
    token is CIRCINUS_TOKEN. The service logs events to stderr, one JSON object a line.
    """
    from circinus.api.http.app import serve as run  # the whole service: only when asked to

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
