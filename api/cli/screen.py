"""Where a command writes: results to stdout, everything about their making to stderr.

A result is a table for people, or with `--json` one JSON document. Nothing that came from a user
or a file is read as markup, and escape codes appear on a terminal only.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self, TypeAlias

import typer
import yaml
from pydantic import BaseModel
from rich.console import Console, Group, RenderableType
from rich.live import Live

from circinus.pipelines.errors import InvalidInput

PIPED_WIDTH = 100

Document: TypeAlias = BaseModel | Mapping[str, object] | Sequence[Mapping[str, object]]


def console(*, to_stderr: bool = False) -> Console:
    """Give a console that is as wide as its terminal, or `PIPED_WIDTH` when piped."""
    stream = sys.stderr if to_stderr else sys.stdout
    width = None if stream.isatty() else PIPED_WIDTH
    return Console(file=stream, width=width, highlight=False, markup=False, emoji=False)


class Screen:
    """What a command prints on.

    Attributes:
        as_json: Whether stdout is for one JSON document.
        out: For results.
        err: For progress, hints and errors.
    """

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self.out = console()
        self.err = console(to_stderr=True)

    def show(self, *parts: RenderableType, document: Document) -> None:
        """Print a result: its parts one below the other, or its document with `--json`."""
        if self.as_json:
            self.json(document)
            return
        for part in parts:
            self.out.print(part)

    def json(self, document: Document) -> None:
        """Print a JSON document."""
        sys.stdout.write(json_text(document))

    def document(self, document: Mapping[str, object]) -> None:
        """Print a document that other programs read: as YAML, or as JSON with `--json`."""
        if self.as_json:
            self.json(document)
        else:
            typer.echo(yaml.safe_dump(document, sort_keys=False), nl=False)

    def note(self, text: str) -> None:
        """Print a line for people beside the result."""
        if not self.as_json:
            self.err.print(text, soft_wrap=True)


def json_text(document: Document) -> str:
    """Give a document as JSON."""
    tree = document.model_dump(mode="json") if isinstance(document, BaseModel) else document
    return json.dumps(tree, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def new_file(path: Path, text: str, *, option: str) -> dict[str, object]:
    """Write a file that must be new; give what `--json` tells of it.

    Raises:
        InvalidInput: If there is one already, or it cannot be written.
    """
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise InvalidInput.of(option, f"must be a new file ({reason})", str(path)) from error
    return {"written": str(path)}


class Follow:
    """A line per subject, kept up to date.

    On a terminal every update redraws the lines in place. Elsewhere a line is printed when its
    key changed (its phase, say), so that a log tells the story without a line per poll.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None
        self._told: dict[str, str] = {}

    def __enter__(self) -> Self:
        """Start drawing."""
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        """Leave the last state on the screen."""
        if self._live is not None:
            self._live.stop()

    def update(self, lines: Mapping[str, tuple[str, str]]) -> None:
        """Show the lines: subject -> (key, text)."""
        if self._live is not None:
            shown = [f"  {subject}  {text}" for subject, (_, text) in lines.items()]
            self._live.update(Group(*shown), refresh=True)
            return
        for subject, (key, text) in lines.items():
            if self._told.get(subject) != key:
                self._told[subject] = key
                self._console.print(f"  {subject}  {text}", soft_wrap=True)
