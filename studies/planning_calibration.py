"""Whether what users are shown of plans is so: `met`, and the intervals of accuracy and latency.

A plan counts once for each search that showed it, with the intervals that it was shown with
first, and as met if it was ever shown so. Searches of a trace share its inputs, so coverages are
averaged by trace, and their interval is one over traces: t of Student, as of so few independent
figures.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import stdtrit

from studies.planning import Row

_CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What became of the plans of a method's searches.

    Attributes:
        method: Its name.
        trace: Name; `all`: each counts the same.
        searches: That showed a plan.
        plans: Shown.
        met: Part of them that was shown with every SLO met.
        met_wrongly: Part of those that do not truly satisfy; NaN where none was.
        accuracy: Part of the 95 % intervals that held the true accuracy.
        accuracy_interval: 95 % interval of that part; empty for single traces.
        latency: The same of all intervals of latency, those of less confidence included.
        latency_interval: As that of the accuracy.
        sure: Part of the intervals of latency that are of 95 %.
        latency_sure: Part of these that held the true latency; NaN where none is.
        latency_sure_interval: As that of the accuracy.
    """

    method: str
    trace: str
    searches: int
    plans: int
    met: float
    met_wrongly: float
    accuracy: float
    accuracy_interval: str = ""
    latency: float
    latency_interval: str = ""
    sure: float
    latency_sure: float
    latency_sure_interval: str = ""


def calibration(rows: Iterable[Row]) -> list[Calibration]:
    """Give a line per method and trace, and one over all traces of each method."""
    groups: dict[str, dict[str, list[Row]]] = {}
    for row in rows:
        if row.shown:
            groups.setdefault(row.method, {}).setdefault(row.trace, []).append(row)
    found = []
    for method, traces in groups.items():
        each = [_line(method, trace, group) for trace, group in traces.items()]
        whole = _line(method, "all", [row for group in traces.values() for row in group])
        found += [*each, _over_traces(whole, each)]
    return found


def _line(method: str, trace: str, rows: Sequence[Row]) -> Calibration:
    plans, met = sum(row.shown for row in rows), sum(row.met for row in rows)
    sure = sum(row.latency_sure for row in rows)
    return Calibration(
        method=method,
        trace=trace,
        searches=len(rows),
        plans=plans,
        met=met / plans,
        met_wrongly=_part(sum(row.met_wrongly for row in rows), met),
        accuracy=sum(row.accuracy_covered for row in rows) / plans,
        latency=sum(row.latency_covered for row in rows) / plans,
        sure=sure / plans,
        latency_sure=_part(sum(row.latency_sure_covered for row in rows), sure),
    )


def _part(count: int, of: int) -> float:
    return count / of if of else float("nan")


def _over_traces(whole: Calibration, each: Sequence[Calibration]) -> Calibration:
    accuracy, told = _mean([line.accuracy for line in each])
    latency, latency_told = _mean([line.latency for line in each])
    sure, sure_told = _mean([line.latency_sure for line in each])
    return replace(
        whole,
        accuracy=accuracy,
        accuracy_interval=told,
        latency=latency,
        latency_interval=latency_told,
        latency_sure=sure,
        latency_sure_interval=sure_told,
    )


def _mean(parts: Sequence[float]) -> tuple[float, str]:
    """Give the mean of what is known, and its interval in words."""
    known = np.array([part for part in parts if not np.isnan(part)])
    if len(known) < 2:
        return (float(known.mean()) if len(known) else float("nan")), ""
    mean = float(known.mean())
    half = float(stdtrit(len(known) - 1, (1 + _CONFIDENCE) / 2))
    half *= float(known.std(ddof=1)) / np.sqrt(len(known))
    return mean, f"{max(mean - half, 0.0):.3f} to {min(mean + half, 1.0):.3f}"
