"""The drift study in a few lines: means over the queries that a drift broke."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from studies.planning_drift import DriftRow, Outcome
from studies.tables import markdown


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftCell:
    """The queries of a level of SLOs of a trace that met a drift.

    Attributes:
        trace: Name of the pipeline.
        drift: What drifted.
        change: How.
        slo: The level.
        runs: Queries.
        unplanned: That had no true plan before.
        holds: Whose plan still satisfies.
        impossible: That no plan satisfies any more.
        counted: The others; all below are of these, means unless it says otherwise.
        oracle_s: Profiling seconds of the oracle.
        cold_s: Of planning from nothing, to the first true plan.
        replanned_s: Of planning with what is known.
        ratio: What replanning takes above the oracle, over what cold planning takes above it;
            below 0 where replanning takes less than the oracle; None: there is none.
        error: Standard error of `replanned_s`.
        at_once: Part that measurements alone answered.
        first_true: Part of replanning's first answers that were true.
        cold_found: Part of cold runs that found a true plan.
        replanned_found: The same of replanned ones.
    """

    trace: str
    drift: str
    change: str
    slo: str
    runs: int
    unplanned: int
    holds: int
    impossible: int
    counted: int
    oracle_s: float | None
    cold_s: float | None
    replanned_s: float | None
    ratio: float | None
    error: float | None
    at_once: float | None
    first_true: float | None
    cold_found: float | None
    replanned_found: float | None


def summary(rows: Iterable[DriftRow]) -> list[DriftCell]:
    """Give a cell per trace, drift and level, in order of first appearance."""
    groups: dict[tuple[str, str, str, str], list[DriftRow]] = {}
    for row in rows:
        groups.setdefault((row.trace, row.drift, row.change, row.slo), []).append(row)
    return [_cell(group) for group in groups.values()]


def table(cells: Iterable[DriftCell]) -> str:
    """Give the cells as a Markdown table."""
    return markdown(cells, DriftCell)


def _cell(group: Sequence[DriftRow]) -> DriftCell:
    outcomes = [row.outcome for row in group]
    counted = [row for row in group if row.outcome == Outcome.COUNTED]
    oracle_s = _mean([row.oracle_seconds for row in counted])
    cold_s = _mean([row.cold_seconds for row in counted])
    again = [row.replanned_seconds for row in counted]
    return DriftCell(
        trace=group[0].trace,
        drift=group[0].drift,
        change=group[0].change,
        slo=group[0].slo,
        runs=len(group),
        unplanned=outcomes.count(Outcome.UNPLANNED),
        holds=outcomes.count(Outcome.HOLDS),
        impossible=outcomes.count(Outcome.IMPOSSIBLE),
        counted=len(counted),
        oracle_s=oracle_s,
        cold_s=cold_s,
        replanned_s=_mean(again),
        ratio=_ratio(_mean(again), cold_s, oracle_s),
        error=_error(again),
        at_once=_mean([row.at_once for row in counted]),
        first_true=_mean([row.first_answer_true for row in counted]),
        cold_found=_mean([row.cold_found for row in counted]),
        replanned_found=_mean([row.replanned_found for row in counted]),
    )


def _ratio(again_s: float | None, cold_s: float | None, oracle_s: float | None) -> float | None:
    if again_s is None or cold_s is None or oracle_s is None or cold_s <= oracle_s:
        return None
    return (again_s - oracle_s) / (cold_s - oracle_s)


def _mean(values: Iterable[float | None]) -> float | None:
    known = [float(value) for value in values if value is not None]
    return float(np.mean(known)) if known else None


def _error(values: Iterable[float | None]) -> float | None:
    known = [float(value) for value in values if value is not None]
    return float(np.std(known, ddof=1) / np.sqrt(len(known))) if len(known) > 1 else None
