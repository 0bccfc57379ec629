"""Every figure in a table of docs/results.md is what the rows beside it give."""

import csv
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import pytest

from circinus.pipelines.io.trace import load_trace
from circinus.studies.data import TRACES
from circinus.studies.online.goodput import GoodputRow
from circinus.studies.online.report import headlines
from circinus.studies.report.tables import grouped, mean
from circinus.studies.trace import front

RESULTS = Path(__file__).parents[2] / "docs" / "results"
PAGE = RESULTS.with_suffix(".md").read_text(encoding="utf-8")
METHODS = ("default", "published", "vulcan", "videostorm", "oracle")
GOODPUT = ("goodput", "ablation")  # the files of `paper-large`, and of `paper-small`
REMOVED = (
    "default",
    "default/greedy",
    "default/fcfs",
    "published",
    "published/local_best",
    "published_continuous",
    "published_without_profiler",
    "published_without_search",
)
OTHERS = [(m, s) for m in ("vulcan", "videostorm", "published") for s in (5.0, 15.0)]


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


def windows(*kinds: str) -> Iterator[tuple[str, list[GoodputRow]]]:
    """Yield the rows of each file of some kinds, named by set-up and trace."""
    for file in (file for kind in kinds for file in sorted(RESULTS.glob(f"{kind}-*.csv"))):
        each = rows(file)
        yield f"{each[0].setup} | {each[0].trace} | {len({row.seed for row in each})}", each


def cells(values: list[float]) -> str:
    return " | ".join(f"{value:.3g}" for value in values)


def goodput_lines() -> list[str]:
    return [
        f"| {name} | {response_s:g} s | "
        + cells([mean([r.goodput for r in group if r.method == m]) or 0.0 for m in METHODS])
        + " |"
        for name, each in windows(*GOODPUT)
        for (response_s,), group in grouped(each, "response_s").items()
    ]


def ratio_lines() -> list[str]:
    lines = []
    for name, each in windows(*GOODPUT):
        ratio = {(line.method, line.response_s): line.ratio for line in headlines(each)}
        lines.append(f"| {name} | {cells([ratio[other] for other in OTHERS])} |")
    return lines


def bound_lines() -> list[str]:
    """Return `default` over the others, both within 15 s; the oracle over them within 5 s."""
    lines = []
    for name, each in windows(*GOODPUT):
        own = {(r.method, r.response_s) for r in each}
        goodput = {
            (m, s): mean([r.goodput for r in each if (r.method, r.response_s) == (m, s)]) or 0.0
            for m, s in own
        }
        others = ("vulcan", "videostorm", "published")
        ratios = [goodput["default", 15.0] / goodput[other, 15.0] for other in others]
        ratios += [goodput["oracle", 5.0] / goodput[other, 5.0] for other in others]
        lines.append(f"| {name} | {cells(ratios)} |")
    return lines


def planned_lines() -> list[str]:
    return [
        f"| {name} | "
        + cells(
            [
                mean([r.planned for r in each if (r.method, r.response_s) == (m, s)]) or 0.0
                for m in METHODS[:-1]
                for s in (5.0, 15.0)
            ]
        )
        + " |"
        for name, each in windows(*GOODPUT)
    ]


def cost_lines() -> list[str]:
    return [
        f"| {name} | "
        + cells([mean([r.usd_per_hour for r in each if r.method == m]) or 0.0 for m in METHODS])
        + " |"
        for name, each in windows("cost")
    ]


def removed_lines() -> list[str]:
    """Return goodput within 5 s of methods without parts, as far as a trace has them."""
    return [
        f"| {name} | "
        + cells(
            [
                mean([r.goodput for r in each if (r.method, r.response_s) == (m, 5.0)]) or 0.0
                for m in REMOVED
            ]
        )
        + " |"
        for name, each in windows("ablation")
    ]


def setting_lines() -> list[str]:
    """Return goodput by what else varies: load, response time, earlier queries, SLOs, tiers."""
    lines = []
    for kind in ("loads", "budgets", "history", "levels", "one", "four"):
        for name, each in windows(kind):
            settings = grouped(each, "slo", "load", "history", "response_s")
            for (slo, load, history, response_s), group in settings.items():
                setting = f"{slo} | {load:g} | {history} | {response_s:g} s"
                means = [mean([r.goodput for r in group if r.method == m]) for m in METHODS]
                shown = " | ".join("" if value is None else f"{value:.3g}" for value in means)
                lines.append(f"| {name} | {setting} | {shown} |")
    return lines


def part_lines() -> list[str]:
    """Return seconds without a part over those of the default: of each trace, and of all."""
    return [*_part_lines("parts.csv"), *_part_lines("parts-fine.csv")]


def _part_lines(name: str) -> Iterator[str]:
    """Yield ratios of means, and last the mean of the seeds' log ratios, by their precision."""
    seconds: dict[tuple[str, str], list[float]] = {}
    with (RESULTS / name).open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            seconds.setdefault((row["method"], row["trace"]), []).append(float(row["seconds"]))
    traces = sorted({trace for _, trace in seconds})
    for method in dict.fromkeys(method for method, _ in seconds):
        if method == "default":
            continue
        both = [(np.array(seconds[method, t]), np.array(seconds["default", t])) for t in traces]
        logs = [np.log(without / whole) for without, whole in both]
        weights = np.array([len(each) / each.var() for each in logs])
        mean_log = float(weights @ [each.mean() for each in logs] / weights.sum())
        ratios = [float(without.mean() / whole.mean()) for without, whole in both]
        error = float(np.exp(mean_log) / np.sqrt(weights.sum()))
        yield f"| {method} | {cells(ratios)} | {np.exp(mean_log):.3g} ({error:.2g}) |"


def live_lines() -> list[str]:
    """Return means over runs: seconds to notice and to replace, latency, accuracy."""
    with (RESULTS / "live-drift.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    columns = ["noticed_s", "replaced_s"]
    columns += [f"latency_{when}" for when in ("before_s", "drifted_s", "after_s")]
    columns += [f"accuracy_{when}" for when in ("before", "drifted", "after")]
    lines = []
    for drift in ("link", "light"):
        own = [row for row in rows if row["drift"] == drift]
        means = [mean([float(r[c]) for r in own if r[c]]) or 0.0 for c in columns]
        lines.append(f"| {drift} | {cells(means)} |")
    return lines


TABLES = [
    goodput_lines,
    ratio_lines,
    bound_lines,
    planned_lines,
    cost_lines,
    removed_lines,
    setting_lines,
    part_lines,
    live_lines,
]


@pytest.mark.parametrize("of", TABLES)
def test_every_line_of_rows_is_on_the_page(of: Any) -> None:  # noqa: ANN401 - a function above
    lines = of()
    assert lines
    assert [line for line in lines if line not in PAGE.splitlines()] == []


@pytest.mark.parametrize("name", [name for name in TRACES if name != "digits-stalled"])
def test_what_nobody_dominates_is_of_the_trace_that_is_shipped(name: str) -> None:
    page = (RESULTS.parent / "pipelines.md").read_text(encoding="utf-8")
    rows = front.table(front.tradeoff(load_trace(TRACES[name]))).partition("--- |\n")[2]
    assert rows in page


def test_every_figure_of_a_table_is_of_rows() -> None:
    """A trace that has no rows has no figures."""
    made = {line for of in TABLES for line in of()}
    shown = re.findall(r"^\| (?:paper-|without_|link|light).*[0-9)] \|$", PAGE, re.MULTILINE)
    assert [line for line in shown if line not in made] == []
    assert sum(file.stat().st_size for file in RESULTS.iterdir()) < 2_000_000
