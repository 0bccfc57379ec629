"""Commands about what earlier queries measured."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from api.cli.command import command
from api.cli.screen import Screen
from api.rendering import formats
from api.rendering.tables import table
from api.schemas import planning_view
from api.settings import Settings
from api.store.history import SqlHistory, open_history
from pipelines.errors import InvalidInput

_app = typer.Typer(
    help="What earlier queries measured: later ones on the same pipeline start from it.",
    no_args_is_help=True,
)
Database = Annotated[
    str | None,
    typer.Option(
        "--database",
        envvar="CIRCINUS_DATABASE_URL",
        help="Database URL; default: the SQLite file in the user's data folder.",
        show_default=False,
    ),
]


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    commands: list[tuple[str, Callable[..., None]]] = [
        ("list", list_),
        ("export", export),
        ("import", import_),
    ]
    for name, body in commands:
        command(_app, name)(body)
    app.add_typer(_app, name="history")


def list_(screen: Screen, database: Database = None) -> None:
    """Show how many queries are remembered of each version of each pipeline, and planned how."""
    found = [(one, planning_view(one.planning)) for one in _opened(database).summaries()]
    shown = table("", "pipeline", "version", "planned by", "queries", right=[3])
    for one, planning in found:
        told = formats.planned_by(planning)
        shown.add_row(one.pipeline, one.fingerprint, told, str(one.queries))
    items = [
        {
            "pipeline": one.pipeline,
            "fingerprint": one.fingerprint,
            "planning": planning.model_dump(mode="json"),
            "queries": one.queries,
        }
        for one, planning in found
    ]
    screen.show(shown, document={"items": items})


def export(
    screen: Screen,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Written; must be new.")],
    database: Database = None,
) -> None:
    """Write everything that is remembered to a JSON file."""
    document = _opened(database).exported()
    try:
        with file.open("x", encoding="utf-8") as opened:
            json.dump(document, opened)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise InvalidInput.of("FILE", f"must be a new file ({reason})", str(file)) from error
    screen.show(str(file), document={"written": str(file)})


def import_(
    screen: Screen,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="That an export wrote.")],
    database: Database = None,
) -> None:
    """Remember what a JSON file tells, besides what is remembered already."""
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        rule = f"must be a readable JSON file ({type(error).__name__})"
        raise InvalidInput.of("FILE", rule, str(file)) from error
    count = _opened(database).imported(document)
    screen.show(f"{count} queries taken in", document={"imported": count})


def _opened(database: str | None) -> SqlHistory:
    return open_history(database or Settings().database_url)
