"""Rows of studies, frozen dataclasses, as CSV files and Markdown tables.

One rule: a CSV file of a study is written here, so that each of its rows names the version of
the source that made it. Which method a row's parts are of, if of any, is a field of the row, from
`deploy.methods.method_where`.
"""

from __future__ import annotations

import csv
import hashlib
import subprocess
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import asdict, fields
from functools import cache
from importlib import metadata
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

import numpy as np

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    Line = TypeVar("Line", bound=DataclassInstance)
    Cell = TypeVar("Cell", bound=DataclassInstance)

VERSION = "version"
"""The last column of every CSV file."""

_DIGITS = 6
_GIT_S = 30.0  # a git that takes longer waits for something


def written(
    rows: Iterable[Line],
    kind: type[Line],
    path: Path,
    *,
    without: Collection[str] = (),
    digits: int | None = _DIGITS,
    observer: Callable[[Line], None] = lambda row: None,
) -> list[Line]:
    """Return the rows, each written to a CSV file at once: the next may take long.

    Columns are the fields of their kind, but for those `without`, and `version`; the file's folder
    is made, an older file replaced; for `digits` see `text`. The observer gets each row.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = [column.name for column in fields(kind) if column.name not in without]
    lines = []
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*columns, VERSION])
        for row in rows:
            writer.writerow([*(text(getattr(row, name), digits) for name in columns), version()])
            file.flush()
            observer(row)
            lines.append(row)
    return lines


def markdown(rows: Iterable[Line], kind: type[Line]) -> str:
    """Return the rows as a Markdown table; the fields of their kind are the columns."""
    lines = (map(text, asdict(row).values()) for row in rows)
    return markdown_lines([column.name for column in fields(kind)], lines)


def markdown_lines(head: Sequence[str], lines: Iterable[Iterable[str]]) -> str:
    """Return a Markdown table with a first line of titles."""
    drawn = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    drawn += ["| " + " | ".join(line) + " |" for line in lines]
    return "\n".join(drawn)


def text(value: object, digits: int | None = _DIGITS) -> str:
    """Return a value as it stands in a table: nothing for None.

    A number that is not whole has so many significant digits; None: as many as it has.
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and digits is not None:
        return f"{value:.{digits}g}"
    return str(value)


def grouped(rows: Iterable[Line], *columns: str) -> dict[tuple[Any, ...], list[Line]]:
    """Return the rows by their values in columns, in order of first appearance."""
    groups: dict[tuple[Any, ...], list[Line]] = {}
    for row in rows:
        groups.setdefault(tuple(getattr(row, column) for column in columns), []).append(row)
    return groups


def summarised(rows: Iterable[Line], kind: type[Cell], *columns: str) -> list[Cell]:
    """Return a cell per group of rows with equal values in columns, in order of first appearance.

    A cell has these values, and annotated fields are what their annotations compute of the group:
    `Annotated[int, len]`, `Annotated[float, of_column(mean, "seconds")]`.
    """
    hints = get_type_hints(kind, include_extras=True).items()
    figures = {n: hint.__metadata__[0] for n, hint in hints if hasattr(hint, "__metadata__")}
    return [
        kind(**dict(zip(columns, key, strict=True)), **{n: of(group) for n, of in figures.items()})
        for key, group in grouped(rows, *columns).items()
    ]


def of_column(figure: Callable[[list[Any]], Any], column: str) -> Callable[[Sequence[Any]], Any]:
    """Return a function of rows: a figure of the values in a column."""
    return lambda rows: figure([getattr(row, column) for row in rows])


def ratio_of(column: str, over: str) -> Callable[[Sequence[Any]], float]:
    """Return a function of rows: the sum of a column over that of another; NaN if that is 0."""
    part, whole = of_column(sum, column), of_column(sum, over)
    return lambda rows: part(rows) / whole(rows) if whole(rows) else nan


def mean(values: Iterable[float | None]) -> float | None:
    """Return the mean of what is known; None: nothing is."""
    return float(np.mean(known)) if (known := _known(values)) else None


def median(values: Iterable[float | None]) -> float | None:
    """Return the median of what is known; None: nothing is."""
    return float(np.median(known)) if (known := _known(values)) else None


def deviation(values: Iterable[float | None]) -> float | None:
    """Return the standard deviation of what is known; None: of fewer than two values."""
    return float(np.std(known, ddof=1)) if len(known := _known(values)) > 1 else None


def error(values: Iterable[float | None]) -> float | None:
    """Return the standard error of the mean of what is known; None: of fewer than two values."""
    known = _known(values)
    spread = deviation(known)
    return None if spread is None else float(spread / np.sqrt(len(known)))


def _known(values: Iterable[float | None]) -> list[float]:
    return [float(value) for value in values if value is not None]


def digest(*folders: Path) -> str:
    """Return a hash of the files in folders: what studies of traces rest on."""
    made = hashlib.sha256()
    for file in (file for folder in folders for file in sorted(folder.iterdir())):
        if file.is_file():
            made.update(f"{file.name} {file.stat().st_size}\n".encode())
            made.update(file.read_bytes())
    return made.hexdigest()


@cache
def version() -> str:
    """Return the version that runs, once for a process: see `version_of`."""
    return version_of(Path(__file__))


def version_of(source: Path) -> str:
    """Return the package's version and, where git tracks a source file, its commit.

    `0.1.0+055be0e`, with `.dirty` behind it if any tracked file differs from the commit. Only
    `0.1.0` where git is missing or does not track the file: an installed package may lie in a
    checkout that is somebody else's.
    """
    try:
        package = metadata.version("circinus")
    except metadata.PackageNotFoundError:  # run from a folder that was never installed
        package = "unknown"
    try:
        _git(source.parent, "ls-files", "--error-unmatch", source.name)
        commit = _git(source.parent, "rev-parse", "--short", "HEAD")
        changed = _git(source.parent, "status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.SubprocessError):
        return package
    return f"{package}+{commit}{'.dirty' if changed else ''}"


def _git(folder: Path, *words: str) -> str:
    # Without locks: a study may start while somebody commits.
    command = ["git", "--no-optional-locks", "-C", str(folder), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=_GIT_S)
    return done.stdout.strip()
