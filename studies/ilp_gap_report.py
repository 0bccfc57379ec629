"""The table, picture and page of the study of scheduling policies, drawn from its rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from statistics import fmean
from typing import Protocol

_COLOURS = ("#c0392b", "#1f618d", "#7d6608", "#884ea0", "#27ae60")
_WIDTH, _HEIGHT, _LEFT, _TOP = 380, 240, 56, 30
_STYLE = (
    "body{font:14px sans-serif;margin:2em;max-width:60em}table{border-collapse:collapse}"
    "td,th{padding:2px 8px;text-align:right;border-bottom:1px solid #ddd}"
)


class GapRow(Protocol):
    """What is shown of a row, see `studies.ilp_gap.Row`."""

    @property
    def queries(self) -> int: ...
    @property
    def policy(self) -> str: ...
    @property
    def objective(self) -> str: ...
    @property
    def served(self) -> int: ...
    @property
    def proven(self) -> bool: ...
    @property
    def seconds(self) -> float: ...
    @property
    def ratio(self) -> float: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Rows of one policy at one size.

    Attributes:
        policy: Name.
        queries: N.
        problems: How many.
        proven: For how many the bound is the optimum.
        mean: Of the ratios to the bound; NaN if one has none.
        worst: The lowest ratio of goodput, the highest of cost.
        served: Mean number of queries.
        seconds: Mean.
    """

    policy: str
    queries: int
    problems: int
    proven: int
    mean: float
    worst: float
    served: float
    seconds: float


def summary(rows: Sequence[GapRow]) -> list[Line]:
    """Give a line per size and policy, in the order of the rows."""
    lines = []
    for queries, policy in dict.fromkeys((r.queries, r.policy) for r in rows):
        of = [r for r in rows if (r.queries, r.policy) == (queries, policy)]
        worst = min if of[0].objective == "goodput" else max
        lines.append(
            Line(
                policy=policy,
                queries=queries,
                problems=len(of),
                proven=sum(r.proven for r in of),
                mean=fmean(r.ratio for r in of),
                worst=worst(r.ratio for r in of),
                served=fmean(r.served for r in of),
                seconds=fmean(r.seconds for r in of),
            )
        )
    return lines


def write(rows: Sequence[GapRow], out: Path) -> None:
    """Write `ilp.svg` and `ilp.html` into a folder that exists."""
    lines = summary(rows)
    objective = rows[0].objective if rows else "goodput"
    svg = picture(lines, objective)
    (out / "ilp.svg").write_text(svg, encoding="utf-8")
    (out / "ilp.html").write_text(_page(lines, svg, objective), encoding="utf-8")


def picture(lines: Sequence[Line], objective: str) -> str:
    """Give an SVG: ratio to the bound, and seconds, by the number of queries."""
    panels = [
        _panel(lines, f"mean {objective} / bound", lambda line: line.mean, log=False, x=0),
        _panel(lines, "mean seconds", lambda line: line.seconds, log=True, x=_WIDTH),
    ]
    names = list(dict.fromkeys(line.policy for line in lines))
    legend = "".join(
        f'<text x="{_LEFT + 90 * i}" y="{_HEIGHT + 40}" fill="{_colour(i)}">{escape(name)}</text>'
        for i, name in enumerate(names)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{2 * _WIDTH + 20}" '
        f'height="{_HEIGHT + 60}" font-family="sans-serif" font-size="12">'
        f"{''.join(panels)}{legend}</svg>\n"
    )


def _panel(
    lines: Sequence[Line], title: str, value: Callable[[Line], float], *, log: bool, x: int
) -> str:
    points = [(line, value(line)) for line in lines if math.isfinite(value(line))]
    heights = [_up(v, log=log) for _, v in points] or [0.0]
    sizes = [math.log10(max(1, line.queries)) for line, _ in points] or [0.0]
    low, high = min(heights), max(heights)
    left, right = min(sizes), max(sizes)

    def at(line: Line, v: float) -> str:
        across = (math.log10(max(1, line.queries)) - left) / (right - left or 1.0)
        up = (_up(v, log=log) - low) / (high - low or 1.0)
        px = x + _LEFT + across * (_WIDTH - _LEFT - 20)
        return f"{px:.1f},{_TOP + (1 - up) * (_HEIGHT - _TOP - 10):.1f}"

    drawn = []
    for i, name in enumerate(dict.fromkeys(line.policy for line in lines)):
        path = [at(line, v) for line, v in points if line.policy == name]
        drawn.append(
            f'<polyline fill="none" stroke="{_colour(i)}" stroke-width="2" '
            f'points="{" ".join(path)}"/>'
        )
        drawn += [
            f'<circle cx="{p.split(",")[0]}" cy="{p.split(",")[1]}" r="3" fill="{_colour(i)}"/>'
            for p in path
        ]
    ends = [(low, _HEIGHT - 10), (high, _TOP + 4)]
    labels = [
        f'<text x="{x + _LEFT - 6}" y="{y}" text-anchor="end">{10**v if log else v:.3g}</text>'
        for v, y in ends
    ]
    spread = sorted({line.queries for line in lines})
    below = f"{spread[0]:,} to {spread[-1]:,} queries (log scale)" if spread else ""
    return (
        f'<text x="{x + _LEFT}" y="16">{escape(title)}</text>{"".join(labels)}{"".join(drawn)}'
        f'<text x="{x + _LEFT}" y="{_HEIGHT + 16}">{below}</text>'
    )


def _up(value: float, *, log: bool) -> float:
    return math.log10(max(value, 1e-6)) if log else value


def _colour(i: int) -> str:
    return _COLOURS[i % len(_COLOURS)]


def _page(lines: Sequence[Line], svg: str, objective: str) -> str:
    head = "".join(
        f"<th>{title}</th>"
        for title in (
            *("queries", "policy", "problems", "proven", "mean ratio", "worst ratio"),
            *("served", "seconds"),
        )
    )
    body = "".join(
        f"<tr><td>{line.queries}</td><td>{escape(line.policy)}</td><td>{line.problems}</td>"
        f"<td>{line.proven}</td><td>{line.mean:.4f}</td><td>{line.worst:.4f}</td>"
        f"<td>{line.served:.1f}</td><td>{line.seconds:.3f}</td></tr>"
        for line in lines
    )
    return (
        f"<!doctype html><meta charset=utf-8><title>Scheduling policies</title>"
        f"<style>{_STYLE}</style><h1>Scheduling policies: {escape(objective)}</h1>"
        f"<p>Ratios are to the best bound: the optimum where it is proven, else what the integer "
        f"program or the linear relaxation still allows. Unproven problems are counted.</p>"
        f"{svg}<table><tr>{head}</tr>{body}</table>\n"
    )
