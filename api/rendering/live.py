"""Progress that follows along: redrawn in place on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text


class Follow:
    """A line per subject, kept up to date.

    On a terminal every update redraws the lines in place. Elsewhere a line is printed when its
    key changed (its phase, say), so that a log tells the story without a line per poll.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = (
            Live(console=console, auto_refresh=False, transient=False)
            if console.is_terminal
            else None
        )
        self._told: dict[str, str] = {}

    def __enter__(self) -> Self:
        """Start drawing."""
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Leave the last state on the screen."""
        if self._live is not None:
            self._live.stop()

    def update(self, lines: Mapping[str, tuple[str, str]]) -> None:
        """Show the lines: subject -> (key, text)."""
        if self._live is not None:
            shown = [Text(f"  {subject}  {text}") for subject, (_, text) in lines.items()]
            self._live.update(Group(*shown), refresh=True)
            return
        for subject, (key, text) in lines.items():
            if self._told.get(subject) != key:
                self._told[subject] = key
                self._console.print(Text(f"  {subject}  {text}"), soft_wrap=True)
