"""Report of the goodput study: means over seeds, and goodput by the minute."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from math import inf, nan
from typing import Annotated

import numpy as np
from matplotlib.figure import Figure

from circinus.deploy.methods import DEFAULT
from circinus.scheduler.problem import Objective
from circinus.studies.online.goodput import GoodputRow
from circinus.studies.report.charts import panels
from circinus.studies.report.tables import error, grouped, mean, of_column, summarised


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowSetting:
    """What windows share that are compared with each other."""

    trace: str
    setup: str
    objective: str
    slo: str
    load: float
    history: int
    migration_price: float | None


_SETTING = tuple(column.name for column in fields(WindowSetting))


@dataclass(frozen=True, slots=True, kw_only=True)
class GoodputCell(WindowSetting):
    """The windows of a method, over seeds."""

    response_s: float
    method: str
    windows: Annotated[int, len]
    goodput: Annotated[float, of_column(mean, "goodput")]
    error: Annotated[float | None, of_column(error, "goodput")]
    live: Annotated[float, of_column(mean, "live")]
    planned: Annotated[float, of_column(mean, "planned")]
    true: Annotated[float | None, of_column(mean, "true")]
    served: Annotated[float, of_column(mean, "served")]
    utilisation: Annotated[float, of_column(mean, "utilisation")]
    displaced: Annotated[float, of_column(mean, "displaced")]
    usd_per_hour: Annotated[float, of_column(mean, "usd_per_hour")]
    planning_s: Annotated[float | None, of_column(mean, "planning_s")]
    of_ilp: Annotated[float | None, of_column(mean, "of_ilp")]


def summary(rows: Iterable[GoodputRow]) -> list[GoodputCell]:
    """Return a cell per method and setting, in order of first appearance."""
    return summarised(rows, GoodputCell, *_SETTING, "response_s", "method")


def pictures(rows: Iterable[GoodputRow]) -> dict[str, Figure]:
    """Draw goodput, or dollars, over time, a file for each trace and setting."""
    groups = grouped(rows, *_SETTING).items()
    return {
        f"{objective}-{trace}-{setup}-{slo}-{load:g}-{history}.svg": _over_time(objective, group)
        for (trace, setup, objective, slo, load, history, _), group in groups
    }


def _over_time(objective: str, rows: Sequence[GoodputRow]) -> Figure:
    """Draw a panel for each response time, a line for each method: the mean of its seeds."""
    by_response = grouped(rows, "response_s")
    figure, axes = panels(1, len(by_response), width=4.5, height=3.4)
    of = rows[0]
    figure.suptitle(
        f"{of.trace}, {of.setup}, {of.slo} SLOs, load {of.load:g}, {of.history} earlier queries",
        fontsize="medium",
    )
    column = "minutes" if objective == Objective.GOODPUT else "usd_minutes"
    for place, ((response_s,), group) in zip(axes[0], by_response.items(), strict=True):
        for (method,), of_method in grouped(group, "method").items():
            each = [[float(word) for word in getattr(row, column).split()] for row in of_method]
            means = np.mean(each, axis=0)
            place.plot(np.arange(1, 1 + len(means)), means, label=method)
        place.set(xlabel="minute", ylim=(0, None), title=f"planned within {response_s:g} s")
    axes[0][0].set_ylabel("queries that count" if column == "minutes" else "dollars an hour")
    return figure


@dataclass(frozen=True, slots=True, kw_only=True)
class Headline(WindowSetting):
    """What `default` makes within its shortest response time, over another method."""

    method: str
    response_s: float  # of the method; that of `default` is the shortest
    ratio: float  # of goodput, or of cost: that of the other over that of `default`
    least: float  # of any seed
    most: float


def headlines(rows: Sequence[GoodputRow]) -> list[Headline]:
    """Return how many times as good `default` is, in its shortest time, as each other method.

    Infinite where what it is divided by is 0, and NaN where both are: the goodput of the other, or
    the cost of `default`. Ratios are of means over seeds, `least` and `most` of single seeds.
    """
    lines = []
    for key, group in grouped(rows, *_SETTING).items():
        shortest = min(row.response_s for row in group)
        ours = [r for r in group if r.method == DEFAULT.name and r.response_s == shortest]
        for (method, response_s), others in grouped(group, "method", "response_s").items():
            if not ours or (method == DEFAULT.name and response_s == shortest):
                continue
            by_seed = {row.seed: row for row in others}
            seeds = [_ratio([row], [by_seed[row.seed]]) for row in ours if row.seed in by_seed]
            lines.append(
                Headline(
                    **dict(zip(_SETTING, key, strict=True)),
                    method=method,
                    response_s=response_s,
                    ratio=_ratio(ours, others),
                    least=min(seeds),
                    most=max(seeds),
                )
            )
    return lines


def _ratio(ours: Sequence[GoodputRow], others: Sequence[GoodputRow]) -> float:
    if ours[0].objective == Objective.COST:
        over, under = (sum(row.usd_per_hour for row in each) for each in (others, ours))
    else:
        over, under = (sum(row.goodput for row in each) for each in (ours, others))
    if under:
        return over / under
    return inf if over else nan
