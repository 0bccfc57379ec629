"""The command line: `circinus`. A file per group of commands; this one puts them together."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

import typer

from api.cli import (
    calibrating,
    catalogue,
    demonstration,
    deploying,
    doctor,
    emulating,
    history,
    operating,
    planning,
    preparing,
    queries,
    questions,
    service,
    serving,
    studies,
    verifying,
)
from api.cli.exits import EPILOG

app = typer.Typer(
    name="circinus",
    help="Plans, deploys and serves compound AI pipelines.",
    epilog=EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _tell_version(asked: bool) -> None:
    if asked:
        typer.echo(version("circinus"))
        raise typer.Exit


@app.callback()
def _circinus(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", is_eager=True, callback=_tell_version
        ),
    ] = False,
) -> None:
    pass


for _group in (
    demonstration,
    service,
    planning,
    queries,
    questions,
    serving,
    emulating,
    operating,
    deploying,
    catalogue,
    preparing,
    calibrating,
    doctor,
    history,
    verifying,
    studies,
):
    _group.register(app)


def main() -> None:
    """Run the command line."""
    app(prog_name="circinus")
