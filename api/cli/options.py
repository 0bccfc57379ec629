"""Options and arguments that several commands share, and what they name."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from circinus.api.cli.screen import Screen
from circinus.api.client import Client
from circinus.api.schemas.faults import faults_of
from circinus.api.settings import Settings
from circinus.deploy.methods import METHODS
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.pipeline import Pipeline
from circinus.pipelines.registry import listed, load_pipeline, registered

DEFAULT_URL = "http://127.0.0.1:8350"
PIPELINE_HELP = "Registered name or module:attribute; default: all available."

QueryFile = Annotated[Path, typer.Argument(metavar="FILE", help="Query file (YAML).")]
QueryId = Annotated[str, typer.Argument(metavar="ID", help="Id of a query.")]
Url = Annotated[str, typer.Option("--url", envvar="CIRCINUS_URL", help="Address of the service.")]
Token = Annotated[
    str | None,
    typer.Option("--token", envvar="CIRCINUS_TOKEN", help="Its bearer token.", show_default=False),
]
Cold = Annotated[
    bool, typer.Option("--cold", help="Start from nothing that earlier queries measured.")
]
InfrastructureName = Annotated[
    str,
    typer.Option(
        "--infrastructure",
        help="YAML file, or a preset: local, one-tier, three-tier, four-tier.",
    ),
]
MethodName = Annotated[
    str | None,
    typer.Option(
        "--method",
        help=f"How to plan, schedule and dispatch: {', '.join(METHODS)}; "
        "left out: as CIRCINUS_METHOD says.",
        show_default=False,
    ),
]


def connect(url: str, token: str | None) -> Client:
    """Give a client of the service."""
    return Client(url, token=token or None)


def settings_with(**options: Any) -> Settings:  # noqa: ANN401 - checked by Settings
    """Give the settings of this process; options that are None are read from the environment.

    Raises:
        InvalidInput: If an option or a variable breaks a rule.
    """
    given = {name: value for name, value in options.items() if value is not None}
    try:
        return Settings(**given)
    except ValidationError as error:
        raise InvalidInput(faults_of(error, model=Settings)) from error


def pipeline_here(reference: str) -> Pipeline:
    """Give the pipeline of a registered name, or of `module:attribute`.

    Modules of the current folder are found, as `python -m` would find them.

    Raises:
        InvalidInput: If there is no such pipeline, or this machine lacks what it needs.
    """
    here = str(Path.cwd())
    if ":" in reference and here not in sys.path:
        sys.path.insert(0, here)
    pipeline = load_pipeline(reference, allow_import=True)
    pipeline.require_available()
    return pipeline


def all_here(screen: Screen) -> list[str]:
    """Give the names of the registered pipelines that can run; the others are told."""
    found = listed(registered())
    for one in found:
        if one.missing:
            told = ", ".join(map(str, one.missing))
            screen.note(f"{one.name}: left out, not available here: {told}")
    return [one.name for one in found if not one.missing]
