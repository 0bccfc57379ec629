"""Rows of studies, frozen dataclasses, as CSV files and Markdown tables."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    Line = TypeVar("Line", bound=DataclassInstance)


def written(rows: Iterable[Line], kind: type[Line], path: Path) -> list[Line]:
    """Give the rows, each written to a CSV file as soon as it is there.

    Args:
        rows: May take long to come.
        kind: Of the rows; its fields are the columns.
        path: Of the file; its folder is made.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    kept = []
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [column.name for column in fields(kind)])
        writer.writeheader()
        for row in rows:
            writer.writerow({name: text(value) for name, value in asdict(row).items()})
            file.flush()
            kept.append(row)
    return kept


def markdown(rows: Iterable[Line], kind: type[Line]) -> str:
    """Give the rows as a Markdown table; the fields of their kind are the columns."""
    head = [column.name for column in fields(kind)]
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    lines += [
        "| " + " | ".join(text(value) for value in asdict(row).values()) + " |" for row in rows
    ]
    return "\n".join(lines)


def text(value: object) -> str:
    """Give a value as it stands in a table: six digits, nothing for None."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.6g}" if isinstance(value, float) else str(value)
