"""`circinus history`: what earlier queries measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from circinus.api.cli.rendering import formats
from circinus.api.cli.rendering.tables import table
from circinus.api.cli.screen import Screen, new_file
from circinus.api.schemas.planning import planning_view
from circinus.api.settings import Settings
from circinus.api.store.history import SqlHistory, open_history
from circinus.pipelines.errors import InvalidInput

Database = Annotated[
    str | None,
    typer.Option(
        "--database",
        envvar="CIRCINUS_DATABASE_URL",
        help="Database URL; default: the SQLite file in the user's data folder.",
        show_default=False,
    ),
]


def list_(screen: Screen, database: Database = None) -> None:
    """Show how many queries are remembered of each version of each pipeline, and planned how."""
    found = [(one, planning_view(one.planning)) for one in _opened(database).summaries()]
    rows = (
        (one.pipeline, one.fingerprint, formats.planned_by(planning), str(one.queries))
        for one, planning in found
    )
    items = [
        {
            "pipeline": one.pipeline,
            "fingerprint": one.fingerprint,
            "planning": planning.model_dump(mode="json"),
            "queries": one.queries,
        }
        for one, planning in found
    ]
    shown = table("", "pipeline", "version", "planned by", "queries", right=[3], rows=rows)
    screen.show(shown, document={"items": items})


def export(
    screen: Screen,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Written; must be new.")],
    database: Database = None,
) -> None:
    """Write everything that is remembered to a JSON file."""
    text = json.dumps(_opened(database).exported())
    screen.show(str(file), document=new_file(file, text, option="FILE"))


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
