"""The picture and the page of the profiling study, drawn from its rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Protocol

_COLOURS = ("#c0392b", "#e59866", "#1f618d", "#27ae60")
_WIDTH, _HEIGHT, _LEFT, _TOP = 360, 220, 46, 30
_CAPTION = (
    "Inputs used (mean over profiles) by the distance of the accuracy SLO from the true mean. "
    "Solid: random order; dashed: stratified."
)
_STYLE = (
    "body{font:14px sans-serif;margin:2em}table{border-collapse:collapse}"
    "td,th{padding:2px 8px;text-align:right;border-bottom:1px solid #ddd}"
    ".bad{background:#f5b7b1}"
)


class ProfilingRow(Protocol):
    """What is shown of a cell, see `studies.profiling.Row`."""

    @property
    def trace(self) -> str: ...
    @property
    def rule(self) -> str: ...
    @property
    def sampling(self) -> str: ...
    @property
    def slo_distance(self) -> float: ...
    @property
    def profiles(self) -> int: ...
    @property
    def inputs_mean(self) -> float: ...
    @property
    def seconds_mean(self) -> float: ...
    @property
    def wrong_rate(self) -> float: ...
    @property
    def variance_ratio(self) -> float: ...


def write(rows: Sequence[ProfilingRow], out: Path) -> None:
    """Write `profiling.svg` and `profiling.html` into a folder that exists."""
    svg = picture(rows)
    (out / "profiling.svg").write_text(svg, encoding="utf-8")
    (out / "profiling.html").write_text(_page(rows, svg), encoding="utf-8")


def summary(rows: Sequence[ProfilingRow]) -> list[tuple[str, str, str, float, float, float]]:
    """Give (trace, rule, sampling, inputs, seconds, worst wrong rate) over the distances."""
    found = []
    for trace, rule, sampling in dict.fromkeys((r.trace, r.rule, r.sampling) for r in rows):
        cells = [
            row
            for row in rows
            if (row.trace, row.rule, row.sampling) == (trace, rule, sampling) and row.profiles
        ]
        if cells:
            inputs = sum(row.inputs_mean for row in cells) / len(cells)
            seconds = sum(row.seconds_mean for row in cells) / len(cells)
            worst = max(row.wrong_rate for row in cells)
            found.append((trace, rule, sampling, inputs, seconds, worst))
    return found


def picture(rows: Sequence[ProfilingRow]) -> str:
    """Give an SVG with a panel per trace: inputs used over the distance."""
    traces = list(dict.fromkeys(row.trace for row in rows))
    rules = list(dict.fromkeys(row.rule for row in rows))
    height = _HEIGHT * len(traces) + 30
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH + 200}" height="{height}" '
        'font-family="sans-serif" font-size="11">'
    ]
    for number, trace in enumerate(traces):
        cells = [row for row in rows if row.trace == trace and row.profiles]
        parts.append(f'<g transform="translate(0,{number * _HEIGHT})">')
        parts.extend(_panel(trace, cells, rules))
        parts.append("</g>")
    return "\n".join([*parts, "</svg>", ""])


def _panel(trace: str, cells: Sequence[ProfilingRow], rules: Sequence[str]) -> Iterable[str]:
    most = max((row.inputs_mean for row in cells), default=1.0)
    yield f'<text x="{_LEFT}" y="18" font-weight="bold">{escape(trace)}</text>'
    for part in (0.0, 0.5, 1.0):
        y = _y(part * most, most)
        yield f'<line x1="{_LEFT}" x2="{_WIDTH}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>'
        label = f"{part * most:.0f}"
        yield f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{label}</text>'
    for distance in sorted({row.slo_distance for row in cells}):
        yield (
            f'<text x="{_x(distance):.1f}" y="{_HEIGHT - 12}" text-anchor="middle" '
            f'font-size="7">{distance:+g}</text>'
        )
    for colour, rule in zip(_COLOURS, rules, strict=False):
        y = _TOP + 14 * rules.index(rule)
        yield f'<text x="{_WIDTH + 14}" y="{y + 4}" fill="{colour}">{escape(rule)}</text>'
        for sampling, dashes in (("random", "none"), ("stratified", "4 3")):
            line = sorted(
                (row.slo_distance, row.inputs_mean)
                for row in cells
                if row.rule == rule and row.sampling == sampling
            )
            points = " ".join(f"{_x(d):.1f},{_y(inputs, most):.1f}" for d, inputs in line)
            yield (
                f'<polyline points="{points}" fill="none" stroke="{colour}" '
                f'stroke-width="1.5" stroke-dasharray="{dashes}"/>'
            )


def _x(distance: float) -> float:
    # Square root, with its sign: near distances are many.
    part = math.copysign(math.sqrt(abs(distance) / 0.4), distance)
    return _LEFT + (_WIDTH - _LEFT) * (part + 1) / 2


def _y(inputs: float, most: float) -> float:
    return _TOP + (_HEIGHT - _TOP - 26) * (1 - inputs / most)


def _page(rows: Sequence[ProfilingRow], svg: str) -> str:
    head = ("trace", "rule", "sampling", "SLO distance", "profiles", "inputs", "seconds", "wrong")
    lines = [
        (
            row.trace,
            row.rule,
            row.sampling,
            f"{row.slo_distance:+g}",
            str(row.profiles),
            f"{row.inputs_mean:.1f}",
            f"{row.seconds_mean:.4g}",
            f"{row.wrong_rate:.3%}",
        )
        for row in rows
    ]
    over_head = ("trace", "rule", "sampling", "inputs", "seconds", "worst wrong rate")
    over = [
        (trace, rule, sampling, f"{inputs:.1f}", f"{seconds:.4g}", f"{worst:.3%}")
        for trace, rule, sampling, inputs, seconds, worst in summary(rows)
    ]
    ratios = dict.fromkeys((row.trace, row.sampling, f"{row.variance_ratio:.3f}") for row in rows)
    return "\n".join(
        (
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            f"<title>Profiling study</title><style>{_STYLE}</style></head><body>",
            f"<h1>Profiling study</h1><p>{_CAPTION}</p>{svg}",
            "<h2>Mean over the distances</h2>",
            _table(over_head, over),
            "<h2>Variance of the estimate over that of a random order</h2>",
            _table(("trace", "sampling", "ratio"), ratios),
            "<h2>Cells</h2>",
            _table(head, lines),
            "</body></html>",
            "",
        )
    )


def _table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    top = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in line) + "</tr>" for line in lines
    )
    return f"<table><tr>{top}</tr>{body}</table>"
