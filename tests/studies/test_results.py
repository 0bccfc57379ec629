"""Every figure of docs/results.md is what the rows beside it give."""

import csv
import re
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from circinus.studies.online.goodput import GoodputRow
from circinus.studies.online.report import headlines
from circinus.studies.report.tables import grouped, mean

RESULTS = Path(__file__).parents[2] / "docs" / "results"
PAGE = RESULTS.with_suffix(".md").read_text(encoding="utf-8")
METHODS = ("default", "published", "vulcan", "videostorm", "oracle")


def rows(file: Path) -> list[GoodputRow]:
    with file.open(newline="", encoding="utf-8") as lines:
        return [_row(line) for line in csv.DictReader(lines)]


def _row(line: dict[str, str]) -> GoodputRow:
    """Columns that were added since the file was made are empty."""
    hints, names = get_type_hints(GoodputRow), [each.name for each in fields(GoodputRow)]
    return GoodputRow(**{name: _value(hints[name], line.get(name, "")) for name in names})


def _value(kind: object, text: str) -> Any:  # noqa: ANN401 - of a field
    if kind is str:
        return text
    if kind is int:
        return int(text or 0)
    return float(text) if text else None


def of(cells: dict[str, float]) -> str:
    return " | ".join(f"{cell:.3g}" for cell in cells.values())


@pytest.mark.parametrize("file", sorted(RESULTS.glob("goodput-*.csv")), ids=lambda file: file.stem)
def test_goodput_is_that_of_the_rows(file: Path) -> None:
    for (trace, response_s), group in grouped(rows(file), "trace", "response_s").items():
        means = {m: mean([r.goodput for r in group if r.method == m]) or 0.0 for m in METHODS}
        assert f"| {trace} | {response_s:g} s | {of(means)} |" in PAGE


@pytest.mark.parametrize("file", sorted(RESULTS.glob("goodput-*.csv")), ids=lambda file: file.stem)
def test_parts_that_are_planned_are_those_of_the_rows(file: Path) -> None:
    each = rows(file)
    planned = {
        f"{m} {s}": mean([r.planned for r in each if (r.method, r.response_s) == (m, s)]) or 0.0
        for m in METHODS[:-1]
        for s in (5.0, 15.0)
    }
    assert f"| {each[0].trace} | {of(planned)} |" in PAGE


@pytest.mark.parametrize("file", sorted(RESULTS.glob("goodput-*.csv")), ids=lambda file: file.stem)
def test_ratios_are_those_of_the_rows(file: Path) -> None:
    others = [(m, s) for m in ("vulcan", "videostorm", "published") for s in (5.0, 15.0)]
    ratio = {(line.method, line.response_s): line.ratio for line in headlines(rows(file))}
    (trace,) = {row.trace for row in rows(file)}
    assert f"| {trace} | {of({f'{other}': ratio[other] for other in others})} |" in PAGE


def test_every_figure_of_a_table_is_of_rows() -> None:
    """A trace that has no rows has no figures."""
    traces = {row.trace for file in RESULTS.glob("goodput-*.csv") for row in rows(file)}
    named = set(re.findall(r"^\| ([a-z-]+) \| [0-9]", PAGE, re.MULTILINE))
    assert named == traces
    assert sum(file.stat().st_size for file in RESULTS.iterdir()) < 2_000_000
