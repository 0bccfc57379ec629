"""Charts as SVG, drawn by matplotlib: one style for all studies, words stay text.

The style is set for the whole process: studies are run by the command line, alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from io import StringIO
from typing import Literal

import matplotlib as mpl
from cycler import cycler
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#b3579a", "#b8860b", "#2aa1d8", "#7f7f7f")
"""Distinct to the colour-blind as well (after Okabe and Ito)."""

_LETTER_INCH = 0.085  # width of an average letter of a legend
_SAMPLE_INCH = 0.7  # of the line beside it
mpl.rcParams.update(
    {
        "axes.grid": True,
        "axes.prop_cycle": cycler(color=COLOURS),
        "axes.spines.right": False,
        "axes.spines.top": False,
        "axes.titlelocation": "left",
        "axes.titlesize": "medium",
        "font.size": 9,
        "grid.alpha": 0.3,
        "legend.frameon": False,
        "svg.fonttype": "none",
        "svg.hashsalt": "circinus",  # equal rows give equal files
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A bar."""

    name: str  # before it
    value: float  # its length
    error: float  # a whisker of so much to either side
    note: str  # behind it
    mark: float | None = None  # a tick across it; None: none
    colour: str = COLOURS[0]  # of the bar


def panels(
    rows: int, columns: int = 1, *, width: float, height: float
) -> tuple[Figure, list[list[Axes]]]:
    """Return a figure with rows of panels, each so many inches wide and high."""
    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False).tolist()


def logarithmic(axes: Axes, side: Literal["x", "y"]) -> None:
    """Scale a side of a panel logarithmically, its ticks plain numbers."""
    axes.set(**{f"{side}scale": "log"})
    axis = axes.xaxis if side == "x" else axes.yaxis
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(lambda value, _: f"{value:g}" if f"{value:e}"[0] in "25" else "")


def svg(figure: Figure) -> str:
    """Return a figure as an SVG element, one legend for all its panels below."""
    names: dict[str, Artist] = {}
    for axes in figure.axes:
        handles, labels = axes.get_legend_handles_labels()
        names |= dict(zip(labels, handles, strict=True))
    if names:
        column = _SAMPLE_INCH + _LETTER_INCH * max(map(len, names))
        fits = max(1, int(figure.get_figwidth() / column))
        figure.legend(list(names.values()), list(names), loc="outside lower center", ncols=fits)
    file = StringIO()
    figure.savefig(file, format="svg", metadata={"Date": None})
    text = file.getvalue()
    return text[text.index("<svg") :]


def bars(title: str, rows: Sequence[Bar], *, reference: tuple[str, float] | None = None) -> Figure:
    """Return a bar per row, and a dashed line across all at a value that has a name."""
    figure, [[axes]] = panels(1, width=8, height=0.9 + 0.3 * len(rows))
    values, errors = [bar.value for bar in rows], [bar.error for bar in rows]
    shorter = [min(value, error) for value, error in zip(values, errors, strict=True)]
    axes.barh(
        range(len(rows)),
        values,
        xerr=[shorter, errors],
        tick_label=[bar.name for bar in rows],
        color=[bar.colour for bar in rows],
        alpha=0.7,
    )
    for place, bar in enumerate(rows):
        end = (bar.value + bar.error, place)
        axes.annotate(bar.note, end, (6, 0), textcoords="offset points", va="center")
        if bar.mark is not None:
            axes.plot([bar.mark] * 2, [place - 0.35, place + 0.35], color="black")
    if reference is not None:
        axes.axvline(reference[1], color=COLOURS[1], linestyle="--", label=reference[0])
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.set_title(title)
    return figure
