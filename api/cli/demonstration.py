"""`circinus demo`."""

from __future__ import annotations

import typer

from api.cli.command import command, leave
from api.cli.exits import ExitCode
from api.cli.screen import Screen


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    command(app, "demo")(demo)


def demo(screen: Screen) -> None:
    """Plan, deploy and serve queries of the built-in pipeline, from start to end."""
    from api.demo import run  # only when asked to

    report = run(screen.out if not screen.as_json else screen.err)
    if screen.as_json:
        screen.json(report.document())
    leave(ExitCode.OK if report.worked else ExitCode.INTERNAL)
