"""What is told of the planning study: means, charts, and whether what users are shown is so."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import isnan, nan
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from scipy.special import stdtrit

from circinus.studies.planning.study import PlanningRow
from circinus.studies.report.charts import Bar, bars
from circinus.studies.report.tables import error, grouped, mean

_CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningCell:
    """The runs of a method on a level of SLOs of a trace; NaN: of none."""

    trace: str
    method: str
    slo: str
    history: int
    runs: int
    mean_s: float
    response_s: float
    oracle_s: float
    found: float
    first_true: float
    steps: float
    cost_20s: float
    proposal_p50_s: float
    proposal_p95_s: float


def summary(rows: Iterable[PlanningRow]) -> list[PlanningCell]:
    """Return a cell per trace, level, method and history, in order of first appearance."""
    groups = grouped(rows, "trace", "slo", "method", "history")
    return [
        PlanningCell(
            trace=trace,
            method=method,
            slo=slo,
            history=history,
            runs=len(group),
            mean_s=_mean(group, "profiling_seconds"),
            response_s=_mean(group, "response_seconds"),
            oracle_s=_mean(group, "oracle_seconds"),
            found=_mean(group, "found"),
            first_true=_mean(group, "first_answer_true"),
            steps=_mean(group, "steps"),
            cost_20s=_mean(group, "cost_ratio_20s"),
            proposal_p50_s=_mean(group, "proposal_seconds_p50"),
            proposal_p95_s=_mean(group, "proposal_seconds_p95"),
        )
        for (trace, slo, method, history), group in groups.items()
    ]


def _mean(rows: Sequence[PlanningRow], column: str) -> float:
    found = mean(getattr(row, column) for row in rows)
    return nan if found is None else found


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
    return bars(title, drawn, reference=("oracle", _mean(rows, "oracle_seconds")))


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """Whether what users were shown of the plans of a method's searches is so.

    A plan counts once for each search that showed it, with the intervals that it was shown with
    first, and as met if it was ever shown so.
    """

    method: str  # its name
    trace: str  # name; `all`: each counts the same
    searches: int  # that showed a plan
    plans: int  # shown
    met: float  # part of them that was shown with every SLO met
    met_wrongly: float  # part of those that do not truly satisfy; NaN where none was
    accuracy: float  # part of the 95 % intervals that held the true accuracy
    accuracy_interval: str = ""  # 95 % interval of that part; empty for single traces
    latency: float  # the same of all intervals of latency, those of less confidence included
    latency_interval: str = ""  # as that of the accuracy
    sure: float  # part of the intervals of latency that are of 95 %
    latency_sure: float  # part of these that held the true latency; NaN where none is
    latency_sure_interval: str = ""  # as that of the accuracy


def coverage(rows: Iterable[PlanningRow]) -> list[Coverage]:
    """Return a line per method and trace, and one over all traces of each method.

    Searches of a trace share its inputs, so coverages are averaged by trace, and their interval is
    one over traces: t of Student, as of so few independent figures.
    """
    found = []
    for (method,), shown in grouped([row for row in rows if row.shown], "method").items():
        traces = grouped(shown, "trace").items()
        each = [_coverage(method, trace, group) for (trace,), group in traces]
        whole = _coverage(method, "all", [row for _, group in traces for row in group])
        over: dict[str, Any] = {}
        for part in ("accuracy", "latency", "latency_sure"):
            over[part], over[f"{part}_interval"] = _over_traces([getattr(e, part) for e in each])
        found += [*each, replace(whole, **over)]
    return found


def _coverage(method: str, trace: str, rows: Sequence[PlanningRow]) -> Coverage:
    plans, met = sum(row.shown for row in rows), sum(row.met for row in rows)
    sure = sum(row.latency_sure for row in rows)
    return Coverage(
        method=method,
        trace=trace,
        searches=len(rows),
        plans=plans,
        met=met / plans,
        met_wrongly=sum(row.met_wrongly for row in rows) / met if met else nan,
        accuracy=sum(row.accuracy_covered for row in rows) / plans,
        latency=sum(row.latency_covered for row in rows) / plans,
        sure=sure / plans,
        latency_sure=sum(row.latency_sure_covered for row in rows) / sure if sure else nan,
    )


def _over_traces(parts: Sequence[float]) -> tuple[float, str]:
    """Return the mean of what is known, and its interval in words."""
    known = [part for part in parts if not isnan(part)]
    middle, deviation = mean(known), error(known)
    if middle is None or deviation is None:
        return nan if middle is None else middle, ""
    half = float(stdtrit(len(known) - 1, (1 + _CONFIDENCE) / 2)) * deviation
    return middle, f"{max(middle - half, 0.0):.3f} to {min(middle + half, 1.0):.3f}"
