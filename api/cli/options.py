"""Options and arguments that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from api.client import Client
from deploy.methods import METHODS

DEFAULT_URL = "http://127.0.0.1:8350"

QueryFile = Annotated[Path, typer.Argument(metavar="FILE", help="Query file (YAML).")]
QueryId = Annotated[str, typer.Argument(metavar="ID", help="Id of a query.")]
Url = Annotated[str, typer.Option("--url", envvar="CIRCINUS_URL", help="Address of the service.")]
Token = Annotated[
    str | None,
    typer.Option("--token", envvar="CIRCINUS_TOKEN", help="Its bearer token.", show_default=False),
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
