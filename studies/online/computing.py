"""The seconds that methods compute between two measurements: measured once, then replayed.

A replay takes no time for operators, so its computing would be measured beside nothing, and each
run would end otherwise. The table `studies/data/computing.csv` has the mean of each method on each
trace; `circinus study computing` makes it anew.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from time import thread_time

from circinus.pipelines import checks
from circinus.pipelines.clock import ManualClock
from circinus.studies.data import COMPUTING


@dataclass(slots=True)
class ReplayClock(ManualClock):
    """Time of a replay: that of operators, and after each measurement that of computing."""

    computing_s: float = 0.0

    def sleep(self, seconds: float) -> None:
        """Pass the seconds of a measurement, and those of computing that follow."""
        self.seconds += max(seconds, 0.0) + self.computing_s


@dataclass(slots=True)
class MeasuringClock(ManualClock):
    """Time of a replay whose computing is this thread's processor time, noted by step."""

    steps_s: list[float] = field(default_factory=list)
    _since: float = field(default_factory=thread_time)

    def now(self) -> float:
        """Return the seconds of operators and of computing so far."""
        return self.seconds + thread_time() - self._since + sum(self.steps_s)

    def sleep(self, seconds: float) -> None:
        """Pass the seconds of a measurement; what was computed since the last one is a step."""
        now = thread_time()
        self.steps_s.append(now - self._since)
        self._since = now
        self.seconds += max(seconds, 0.0)


@cache
def table() -> Mapping[tuple[str, str], float]:
    """Return the seconds between two measurements, by method and trace."""
    with COMPUTING.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return {(row["method"], row["trace"]): float(row["seconds"]) for row in rows}


def computing_s(method: str, trace: str) -> float:
    """Return the seconds of a method between two measurements on a trace.

    The most of its other traces for a trace that the table lacks; InvalidInput if it lacks the
    method.
    """
    known = table()
    of_method = {name: seconds for (who, name), seconds in known.items() if who == method}
    rule = f"must be in {COMPUTING.name}, which `circinus study computing` makes"
    checks.require(bool(of_method), "methods", rule, method)
    return of_method.get(trace, max(of_method.values()))
