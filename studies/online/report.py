"""Report of the goodput study: means over seeds, and goodput by the minute."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from matplotlib.figure import Figure

from circinus.studies.online.goodput import GoodputRow
from circinus.studies.report.charts import panels
from circinus.studies.report.tables import error, grouped, mean, of_column, summarised

_CELL = ("trace", "setup", "slo", "load", "history", "response_s", "method")


@dataclass(frozen=True, slots=True, kw_only=True)
class GoodputCell:
    """The windows of a method, over seeds."""

    trace: str
    setup: str
    slo: str
    load: float
    history: int
    response_s: float
    method: str
    windows: Annotated[int, len]
    goodput: Annotated[float, of_column(mean, "goodput")]
    error: Annotated[float | None, of_column(error, "goodput")]
    live: Annotated[float, of_column(mean, "live")]
    planned: Annotated[float, of_column(mean, "planned")]
    true: Annotated[float, of_column(mean, "true")]
    served: Annotated[float, of_column(mean, "served")]
    utilisation: Annotated[float, of_column(mean, "utilisation")]
    usd_per_hour: Annotated[float, of_column(mean, "usd_per_hour")]
    planning_s: Annotated[float, of_column(mean, "planning_s")]
    of_ilp: Annotated[float | None, of_column(mean, "of_ilp")]


def summary(rows: Iterable[GoodputRow]) -> list[GoodputCell]:
    """Return a cell per method and setting, in order of first appearance."""
    return summarised(rows, GoodputCell, *_CELL)


def pictures(rows: Iterable[GoodputRow]) -> dict[str, Figure]:
    """Draw goodput over time, a file for each trace and set-up."""
    groups = grouped(rows, "trace", "setup", "slo", "load").items()
    return {
        f"goodput-{trace}-{setup}-{slo}-{load:g}.svg": _over_time(
            f"{trace} on {setup}, {slo} SLOs, load {load:g}: queries that count, mean of seeds",
            group,
        )
        for (trace, setup, slo, load), group in groups
    }


def _over_time(title: str, rows: Sequence[GoodputRow]) -> Figure:
    """Draw a panel for each response time, a line for each method."""
    by_response = grouped(rows, "response_s")
    figure, axes = panels(1, len(by_response), width=4.5, height=3.2)
    for place, ((response_s,), group) in zip(axes[0], by_response.items(), strict=True):
        for (method,), of_method in grouped(group, "method").items():
            minutes = np.array([[float(m) for m in row.minutes.split()] for row in of_method])
            place.plot(np.arange(1, 1 + minutes.shape[1]), minutes.mean(axis=0), label=method)
        place.set(xlabel="minute", ylim=(0, None), title=f"planned within {response_s:g} s")
    figure.suptitle(title, x=0.01, ha="left", fontsize="medium")
    return figure
