"""What planning a query gives, on the way and at the end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from pipelines.plan import Plan
from planner.bill import Bill
from planner.history import ConfigurationRecord


class Outcome(StrEnum):
    """How planning ended."""

    FEASIBLE = "feasible"
    """There is at least one plan."""
    INFEASIBLE = "infeasible"
    """No plan: everything was measured, or what is left has next to no chance."""
    EXHAUSTED = "exhausted"
    """A limit came before any plan was found."""
    CANCELLED = "cancelled"
    """The observer ended it; plans found by then are given."""


class Phase(StrEnum):
    """What planning is at."""

    PROBING = "probing"
    """A few measurements say what planning will cost."""
    SEARCHING = "searching"
    """No feasible plan yet."""
    IMPROVING = "improving"
    """A feasible plan is known; cheaper ones are looked for."""
    FINISHED = "finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortfall:
    """Why there is no plan, and what would have been enough.

    Attributes:
        binding: The SLOs that bind, among accuracy, latency and cost; empty when nothing was
            measured.
        closest: The measured plan that misses the SLOs by least; None when nothing was measured.
        sentence: All this in words.
        relaxations: SLO -> the value nearest to the one asked for that a measured plan would
            have met, the other SLOs kept. An SLO is missing when relaxing it alone helps none.
        sure_relaxations: The same with the confidence of the estimates: a bound at the estimate
            itself may well be missed.
        evidence: What it rests on, in words.
    """

    binding: tuple[str, ...]
    closest: Plan | None
    sentence: str
    relaxations: Mapping[str, float]
    evidence: str
    sure_relaxations: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Where planning is.

    Attributes:
        phase: What it is at.
        measured: Configurations measured, failed ones included.
        failed: How many of them failed.
        inputs: Measurements (configuration, input) used.
        spent_s: Operator seconds paid.
        profiling_left_s: Operator seconds that may still be paid, `>= 0`.
        elapsed_s: Wall-clock seconds since the start.
        time_left_s: Wall-clock seconds left, `>= 0`; None: not limited.
        best: The cheapest feasible plan so far; None: none yet.
        plans: How many plans the Pareto set holds.
        found: Plans that the latest measurement gave, cheapest first, kept or not.
        bill: What was expected, paid and saved.
    """

    phase: Phase
    measured: int
    failed: int
    inputs: int
    spent_s: float
    profiling_left_s: float
    elapsed_s: float
    time_left_s: float | None
    best: Plan | None
    plans: int
    found: tuple[Plan, ...] = ()
    bill: Bill = field(default_factory=Bill)


class Observer(Protocol):
    """Is told how planning goes, and may end it.

    Called in the thread that plans, which waits: after every configuration, and every few inputs
    within one. `progress` must not raise. `cancelled` is asked after every input.
    """

    def progress(self, progress: Progress) -> None:
        """Take in where planning is."""

    def cancelled(self) -> bool:
        """Give whether planning shall end."""


@dataclass(frozen=True, slots=True)
class Unobserved:
    """An observer that ignores progress and never cancels."""

    def progress(self, progress: Progress) -> None:
        """Ignore it."""

    def cancelled(self) -> bool:
        """Give False."""
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningResult:
    """What planning gave.

    Attributes:
        outcome: How it ended.
        plans: The Pareto set in (cost, latency, accuracy, demand per tier), cheapest first.
        measured: Configurations measured, failed ones included.
        failed: How many of them failed.
        inputs: Measurements (configuration, input) used.
        spent_s: Operator seconds paid.
        saved_s: Operator seconds that caches saved.
        stopped_because: In words.
        shortfall: Why there is no plan; None when there is one, or planning was cancelled.
        bill: What was expected, paid and saved.
        configurations: What was measured, for later queries on the pipeline to learn from.
    """

    outcome: Outcome
    plans: tuple[Plan, ...]
    measured: int
    failed: int
    inputs: int
    spent_s: float
    saved_s: float
    stopped_because: str
    shortfall: Shortfall | None
    bill: Bill = field(default_factory=Bill)
    configurations: tuple[ConfigurationRecord, ...] = ()
