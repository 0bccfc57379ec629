"""Where a command writes: results to stdout, everything about their making to stderr.

A result is a table for people, or with `--json` one JSON document. Nothing that came from a user
or a file is read as markup, and escape codes appear on a terminal only.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from pydantic import BaseModel
from rich.console import Console, RenderableType

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
        tree = document.model_dump(mode="json") if isinstance(document, BaseModel) else document
        sys.stdout.write(json.dumps(tree, indent=2, ensure_ascii=False, allow_nan=False) + "\n")

    def note(self, text: str) -> None:
        """Print a line for people beside the result."""
        if not self.as_json:
            self.err.print(text, soft_wrap=True)
