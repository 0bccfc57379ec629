"""Tables on narrow screens: columns beside each other would break words and figures to pieces."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

NARROW = 70  # columns of a screen, below which a row stands as lines


class Stacking(Table):
    """A table whose rows are lines of `column: value` where the screen is narrow."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """See rich."""
        if options.max_width >= NARROW or len(self.columns) <= 2:
            yield from super().__rich_console__(console, options)
        else:
            yield from self._stacked()

    def _stacked(self) -> Iterator[Text]:
        if self.title:
            yield Text(str(self.title), style="bold")
        for row in zip(*(column.cells for column in self.columns), strict=True):
            for column, cell in zip(self.columns, row, strict=True):
                value = cell if isinstance(cell, Text) else Text(str(cell))
                if value.plain.strip():
                    name = f"{column.header}: " if self.show_header and column.header else ""
                    yield Text.assemble((name, "dim"), value)
            yield Text()
