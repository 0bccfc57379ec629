"""Tables that break no word and no figure: where these need too much room, rows are lines.

Columns that a table can do without go before any line is broken.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import replace

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Column, Table
from rich.text import Text

_ANY = 10_000  # a width at which nothing is cut when what a table needs is measured


class Stacking(Table):
    """A table whose columns hold their longest word, or whose rows stand as lines."""

    optional: tuple[int, ...] = ()
    """Columns that are left out where there is no room, the first one first."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """See rich."""
        made = self
        while made.optional and made._whole(console, options) > options.max_width:
            made = made._without(made.optional[0])
        least, most = zip(*map(_widths, made.columns), strict=True)
        spare = options.max_width - (made._whole(console, options) - sum(most)) - sum(least)
        if spare < 0 and len(made.columns) > 2:
            yield from self._stacked()  # where there is room for all columns
            return
        drawn = copy(made)
        if 0 <= spare < sum(most) - sum(least):
            widths = _shared(spare, least, most)
            drawn.columns = [
                replace(c, width=w) for c, w in zip(made.columns, widths, strict=True)
            ]
        yield from Table.__rich_console__(drawn, console, options)

    def _whole(self, console: Console, options: ConsoleOptions) -> int:
        """Return the width of the table with no line broken."""
        return Measurement.get(console, options.update_width(_ANY), self).maximum

    def _without(self, gone: int) -> Stacking:
        made = copy(self)
        remaining = [column for i, column in enumerate(self.columns) if i != gone]
        made.columns = [replace(column, _index=i) for i, column in enumerate(remaining)]
        made.optional = tuple(i - (i > gone) for i in self.optional[1:])
        return made

    def _stacked(self) -> Iterator[Text]:
        if self.title:
            yield Text(str(self.title), style="bold")
        for row in zip(*(column.cells for column in self.columns), strict=True):
            for column, cell in zip(self.columns, row, strict=True):
                value = cell if isinstance(cell, Text) else Text(str(cell))
                if value.plain.strip():
                    name = f"{column.header}: " if self.show_header and column.header else ""
                    yield Text.assemble((name, "dim"), value)
            if self.show_header:
                yield Text()


def _shared(spare: int, least: Sequence[int], most: Sequence[int]) -> Sequence[int]:
    """Return widths from the least to the most; columns that lack little get that first."""
    widths = list(least)
    for i in sorted(range(len(widths)), key=lambda i: most[i] - least[i]):
        widths[i] += min(most[i] - least[i], spare)
        spare -= widths[i] - least[i]
    return widths


def _widths(column: Column) -> tuple[int, int]:
    """Return the least width of a column that breaks no word or figure, and that of its lines."""
    cells, header = [str(cell) for cell in column.cells], str(column.header)
    lines = [line for text in (*cells, header) for line in text.splitlines()]
    whole = [word for line in lines for word in line.split()]
    whole += cells if column.justify == "right" else []
    return max(map(cell_len, whole), default=0), max(map(cell_len, lines), default=0)
