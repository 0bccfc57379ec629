"""What the study of scheduling policies tells: rows, lines put together, picture and page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isfinite, log10, nan
from pathlib import Path
from statistics import fmean

from circinus.scheduler.ilp.model import Objective
from circinus.studies.report.charts import COLOURS, Axis, Panel, Series, chart, decades
from circinus.studies.report.pages import grid, page, paragraph

NEAREST_PERCENT = 0.001
"""Distances below it are drawn there; the axis says so."""
_SHORTEST_S = 1e-4
_COLUMNS = (
    *("queries", "policy", "problems", "proven", "mean ratio", "worst ratio", "served"),
    *("seconds", "processor seconds"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GapRow:
    """What one policy made of one problem; a line of `ilp.csv`, but for `cpu_seconds`."""

    queries: int  # N
    plans: int  # of a query
    tiers: int  # shared ones
    seed: int | None  # of the problem; empty if it was given
    policy: str
    method: str | None  # whose scheduling policy it is; empty: of none
    objective: str  # `goodput` or `cost`
    served: int  # queries
    goodput: float  # sum of the benefits of those (their weights, if all priorities are equal)
    cost: float  # dollars per hour of all machines that hold anything, as whole machines
    bound: float  # no schedule is better: the integer program's, or that of the linear relaxation
    proven: bool  # whether the bound is the optimum
    seconds: float  # the policy took, of the machine's time
    cpu_seconds: float  # of the processor's, in this process: CBC runs in another

    @property
    def ratio(self) -> float:
        """Goodput over its bound, or cost over its; NaN for a cost that does not serve all."""
        if self.objective == Objective.GOODPUT:
            return self.goodput / self.bound if self.bound > 0 else 1.0
        if self.served < self.queries:
            return nan
        return self.cost / self.bound if self.bound > 0 else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Rows of one policy at one size, put together."""

    policy: str
    queries: int  # N
    problems: int  # how many
    proven: int  # for how many the bound is the optimum
    mean_ratio: float  # of the ratios to the bound; NaN if one has none
    worst_ratio: float  # the lowest ratio of goodput, the highest of cost
    served: float  # mean number of queries
    seconds: float  # mean, of the machine's time
    cpu_seconds: float  # mean, of the processor's, in the study's process


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
                mean_ratio=fmean(r.ratio for r in of),
                worst_ratio=worst(r.ratio for r in of),
                served=fmean(r.served for r in of),
                seconds=fmean(r.seconds for r in of),
                cpu_seconds=fmean(r.cpu_seconds for r in of),
            )
        )
    return lines


def cells(line: Line) -> tuple[str, ...]:
    """Give a line as words: queries, policy, then as `Line`."""
    return (
        *(str(line.queries), line.policy, str(line.problems), str(line.proven)),
        *(f"{line.mean_ratio:.4f}", f"{line.worst_ratio:.4f}", f"{line.served:.1f}"),
        *(f"{line.seconds:.3f}", f"{line.cpu_seconds:.3f}"),
    )


def write(rows: Sequence[GapRow], out: Path) -> None:
    """Write `ilp.svg` and `ilp.html` into a folder that exists."""
    lines = summary(rows)
    objective = rows[0].objective if rows else "goodput"
    svg = picture(lines, objective)
    (out / "ilp.svg").write_text(svg, encoding="utf-8")
    html = _page(lines, svg, objective, _about(rows))
    (out / "ilp.html").write_text(html, encoding="utf-8")


def _about(rows: Sequence[GapRow]) -> str:
    """Tell which problems were run, in a sentence."""
    if not rows:
        return "No problem was run."
    shape = f"up to {max(r.plans for r in rows)} plans per query on {rows[0].tiers} shared tiers"
    seeds = sorted({r.seed for r in rows if r.seed is not None})
    problems = len({(r.queries, r.seed) for r in rows})
    if not seeds:
        return f"A problem from a file: {rows[0].queries} queries, {shape}."
    drawn = f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {seeds[0]} to {seeds[-1]}"
    return f"Problems drawn: {problems}, {drawn}, {shape}."


def _page(lines: Sequence[Line], svg: str, objective: str, about: str) -> str:
    ratios = (
        "Ratios are to the best bound: the optimum where it is proven, else what the integer "
        "program or the linear relaxation still allows. Unproven problems are counted."
    )
    title = f"Scheduling policies: {objective}"
    return page(title, paragraph(f"{about} {ratios}"), svg, grid(_COLUMNS, map(cells, lines)))


def picture(lines: Sequence[Line], objective: str) -> str:
    """Give an SVG: distance to the bound, and seconds, by the number of queries.

    Both panels are log-log. The good policies are within a percent of the bound, so their
    distance to it is drawn, not their ratio: on an axis of ratios they are one line. A band
    reaches from the mean to the worst problem.
    """
    title = f"{objective}: distance to the bound, %, mean to worst"
    panels = [
        _panel(lines, title, _distance_percent, NEAREST_PERCENT),
        _panel(lines, "mean seconds", lambda line: (line.seconds, line.seconds), _SHORTEST_S),
    ]
    return chart(panels, title=f"Scheduling policies: {objective}", columns=2, width=400)


def _distance_percent(line: Line) -> tuple[float, float]:
    return 100 * abs(1 - line.mean_ratio), 100 * abs(1 - line.worst_ratio)


def _panel(
    lines: Sequence[Line], title: str, figures: Callable[[Line], tuple[float, float]], least: float
) -> Panel:
    """Draw mean and worst; below `least` they are drawn there, those that are none left out."""
    drawn = [
        (line, [max(figure, least) for figure in figures(line)])
        for line in lines
        if isfinite(figures(line)[0]) and line.queries > 0
    ]
    sizes = sorted({line.queries for line, _ in drawn}) or [1]
    x = Axis(
        label="queries",
        low=sizes[0],
        high=sizes[-1] if len(sizes) > 1 else 10 * sizes[0],
        ticks=[(size, f"{size:,}") for size in sizes],
        warp=log10,
    )
    series = []
    for i, name in enumerate(dict.fromkeys(line.policy for line in lines)):
        own = [(line.queries, *at) for line, at in drawn if line.policy == name]
        points = [(size, mean) for size, mean, _ in own]
        band = [(mean, worst) for _, mean, worst in own] if any(m < w for _, m, w in own) else ()
        colour = COLOURS[i % len(COLOURS)]
        series.append(Series(name=name, points=points, colour=colour, radius=3, band=band))
    y = decades((figure for _, both in drawn for figure in both), "", floor_at=least)
    return Panel(title=title, x=x, y=y, series=series)
