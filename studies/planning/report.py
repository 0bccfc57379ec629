"""Report of the planning study: means, charts, and whether the figures shown to users hold."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import isnan, nan
from statistics import fmean
from typing import Annotated, Any

import numpy as np
from matplotlib.figure import Figure
from scipy.special import stdtrit

from circinus.studies.planning.study import PlanningRow
from circinus.studies.report.charts import Bar, bars
from circinus.studies.report.tables import error, grouped, mean, of_column, ratio_of, summarised

_CONFIDENCE = 0.95


def _mean(values: Iterable[float | None]) -> float:
    known = mean(values)
    return nan if known is None else known


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningCell:
    """The runs of a method on a level of SLOs of a trace; NaN: of none."""

    trace: str
    method: str
    slo: str
    history: int
    runs: Annotated[int, len]
    mean_s: Annotated[float, of_column(mean, "profiling_seconds")]
    response_s: Annotated[float, of_column(mean, "response_seconds")]
    oracle_s: Annotated[float, of_column(mean, "oracle_seconds")]
    found: Annotated[float, of_column(mean, "found")]
    first_true: Annotated[float, of_column(_mean, "first_answer_true")]
    steps: Annotated[float, of_column(mean, "steps")]
    cost_20s: Annotated[float, of_column(_mean, "cost_ratio_20s")]
    proposal_p50_s: Annotated[float, of_column(mean, "proposal_seconds_p50")]
    proposal_p95_s: Annotated[float, of_column(mean, "proposal_seconds_p95")]


def summary(rows: Iterable[PlanningRow]) -> list[PlanningCell]:
    """Return a cell per trace, level, method and history, in order of first appearance."""
    return summarised(rows, PlanningCell, "trace", "slo", "method", "history")


def pictures(rows: Iterable[PlanningRow]) -> dict[str, Figure]:
    """Draw every trace and level, by file name."""
    groups = grouped(rows, "trace", "slo").items()
    return {f"planning-{trace}-{slo}.svg": _picture(group) for (trace, slo), group in groups}


def _picture(rows: Sequence[PlanningRow]) -> Figure:
    """Draw a bar per method: the mean, a whisker of its standard error, a tick at the median."""
    drawn = []
    for (method, history), group in grouped(rows, "method", "history").items():
        seconds = [row.profiling_seconds for row in group]
        length, true = float(np.mean(seconds)), np.mean([bool(r.first_answer_true) for r in group])
        name = f"{method}, {history} earlier" if history else method
        note = f"{length:.3f} s, {true:.0%} true, {len(group)} runs"
        whisker, middle = error(seconds) or 0.0, float(np.median(seconds))
        drawn.append(Bar(name=name, value=length, error=whisker, mark=middle, note=note))
    title = "seconds of profiling to the first true plan: mean, standard error, median (tick)"
    return bars(title, drawn, reference=("oracle", fmean(row.oracle_seconds for row in rows)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """Whether the figures that users saw of the plans of a method's searches hold.

    A plan counts once for each search that showed it, with the intervals of its first
    announcement, and as met if any announcement called it met.
    """

    method: str  # its name
    trace: str  # name; `all`: each counts the same
    searches: Annotated[int, len]  # that showed a plan
    plans: Annotated[int, of_column(sum, "shown")]  # shown
    met: Annotated[float, ratio_of("met", "shown")]  # part announced with every SLO met
    # part of those that do not truly satisfy; NaN where none was
    met_wrongly: Annotated[float, ratio_of("met_wrongly", "met")]
    # part of the 95 % intervals that held the true accuracy
    accuracy: Annotated[float, ratio_of("accuracy_covered", "shown")]
    accuracy_interval: str = ""  # 95 % interval of that part; empty for single traces
    # the same of all intervals of latency, those of less confidence included
    latency: Annotated[float, ratio_of("latency_covered", "shown")]
    latency_interval: str = ""  # as that of the accuracy
    # part of the intervals of latency that are of 95 %
    sure: Annotated[float, ratio_of("latency_sure", "shown")]
    # part of these that held the true latency; NaN where none is
    latency_sure: Annotated[float, ratio_of("latency_sure_covered", "latency_sure")]
    latency_sure_interval: str = ""  # as that of the accuracy


def coverage(rows: Iterable[PlanningRow]) -> list[Coverage]:
    """Return a line per method and trace, and one over all traces of each method.

    Searches of a trace share its inputs, so coverages are averaged by trace, and their interval is
    one over traces: t of Student, as of so few independent figures.
    """
    lines = []
    for of_method in grouped([row for row in rows if row.shown], "method").values():
        traces = summarised(of_method, Coverage, "method", "trace")
        together = [replace(row, trace="all") for row in of_method]
        (whole,) = summarised(together, Coverage, "method", "trace")
        over: dict[str, Any] = {}
        for part in ("accuracy", "latency", "latency_sure"):
            over[part], over[f"{part}_interval"] = _over_traces([getattr(t, part) for t in traces])
        lines += [*traces, replace(whole, **over)]
    return lines


def _over_traces(parts: Sequence[float]) -> tuple[float, str]:
    """Return the mean of what is known, and its interval in words."""
    known = [part for part in parts if not isnan(part)]
    middle, deviation = mean(known), error(known)
    if middle is None or deviation is None:
        return nan if middle is None else middle, ""
    half = float(stdtrit(len(known) - 1, (1 + _CONFIDENCE) / 2)) * deviation
    return middle, f"{max(middle - half, 0.0):.3f} to {min(middle + half, 1.0):.3f}"
