"""Output to a terminal: results on stdout, progress and notes on stderr.

A result is a table for people, or with `--json` one JSON document. No text of a user or a file is
parsed as markup, and escape codes appear on a terminal only.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from shutil import get_terminal_size
from threading import Event, Lock, Thread, current_thread, main_thread
from types import FrameType
from typing import TextIO

import typer
import yaml
from pydantic_core import to_jsonable_python
from rich.console import Console, Group, RenderableType
from rich.live import Live

from circinus.pipelines.clock import SystemClock
from circinus.pipelines.errors import InvalidInput

PIPED_WIDTH = 100
SILENCE_S = 2.0  # the longest without a word while something is followed


def _console(stream: TextIO) -> Console:
    """Return a console as wide as its terminal; when piped, by COLUMNS, or `PIPED_WIDTH`."""
    width = None if stream.isatty() else get_terminal_size((PIPED_WIDTH, 0)).columns
    return Console(file=stream, width=width, highlight=False, markup=False, emoji=False)


class Screen:
    """What a command prints on."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json  # whether stdout is for one JSON document
        self.out = _console(sys.stdout)  # for results
        self.err = _console(sys.stderr)  # for progress, hints and errors

    def show(self, *parts: RenderableType, document: object) -> None:
        """Print a result: its parts one below the other, or its document with `--json`."""
        if self.as_json:
            self.json(document)
        else:
            self.out.print(*parts, sep="\n")

    def json(self, document: object) -> None:
        """Print a JSON document."""
        self.out.file.write(json_text(document))

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

    def new_file(self, path: Path, text: str, *, option: str) -> None:
        """Write a file and print its path; InvalidInput if it exists or cannot be written."""
        try:
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise InvalidInput.of(option, f"must be a new file ({reason})", str(path)) from error
        self.show(str(path), document={"written": path})

    def follow(self) -> Follow:
        """Return lines for people that are updated beside the result."""
        return Follow(self.err, quiet=self.as_json)


@contextmanager
def on_signal(number: int, handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """Let a signal call a handler while the block runs."""
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


@contextmanager
def interruptible(stop: Event) -> Iterator[None]:
    """Let Ctrl-C set `stop` while the block runs; a second one raises as always.

    In other threads than the main one nothing is changed: no signal arrives there.
    """

    def interrupt(number: int, _frame: object) -> None:
        stop.set()
        signal.signal(number, signal.default_int_handler)

    # A handler that is not Python's own cannot be put back.
    if current_thread() is main_thread() and signal.getsignal(signal.SIGINT) is not None:
        with on_signal(signal.SIGINT, interrupt):
            yield
    else:
        yield


def json_text(document: object) -> str:
    """Return schemas, dataclasses and what holds them as JSON; null for what is no number."""
    tree = to_jsonable_python(document, inf_nan_mode="null")
    return json.dumps(tree, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


class Follow(ExitStack):
    """A line per subject, updated in place.

    On a terminal every update redraws the lines in place. Elsewhere a line is printed when its
    key changed (its phase, say), so that a log is complete without a line per poll. When none was
    printed for `SILENCE_S`, the line that changed last is, with the time since. At exit the last
    state remains on the screen.
    """

    def __init__(self, console: Console, *, quiet: bool = False) -> None:
        super().__init__()
        self._console, self._quiet = console, quiet
        live = Live(console=console, auto_refresh=False)
        self._live = self.enter_context(live) if console.is_terminal else None
        self._printed: dict[str, str] = {}
        self._lines: Mapping[str, tuple[str, str]] = {"planning": ("", "starting")}
        self._newest = "planning"  # the subject whose line changed last
        self._clock, self._lock, self._over = SystemClock(), Lock(), Event()
        # Of the last update with something new, and of the last line.
        self._since_s = self._printed_at = self._clock.now()
        if not quiet:
            Thread(target=self._beat, name="progress", daemon=True).start()
            self.callback(self._over.set)

    def update(self, lines: Mapping[str, tuple[str, str]]) -> None:
        """Show the lines: subject -> (key, text)."""
        if self._quiet:
            return
        with self._lock:
            if lines != self._lines:
                for subject in (s for s, line in lines.items() if self._lines.get(s) != line):
                    self._newest = subject
                self._lines, self._since_s = dict(lines), self._clock.now()
            if self._live is not None:
                self._print(lines)
                return
            changed = {s: line for s, line in lines.items() if self._printed.get(s) != line[0]}
            self._printed |= {subject: key for subject, (key, _) in changed.items()}
            self._print(changed)

    def _print(self, lines: Mapping[str, tuple[str, str]], more: str = "") -> None:
        rows = [f"  {subject}  {text}{more}" for subject, (_, text) in lines.items()]
        if rows:
            self._printed_at = self._clock.now()
        if self._live is not None:
            self._live.update(Group(*rows), refresh=True)
            return
        for line in rows:
            self._console.print(line, soft_wrap=True)

    def _beat(self) -> None:
        while not self._over.wait(SILENCE_S / 4):
            with self._lock:
                now = self._clock.now()
                if now - self._printed_at >= SILENCE_S * 3 / 4:
                    lines = dict(self._lines)
                    if self._live is None and self._newest in lines:
                        lines = {self._newest: lines[self._newest]}
                    since_s = now - self._since_s
                    self._print(lines, f", for {since_s:.0f} s" if since_s >= 1 else "")
