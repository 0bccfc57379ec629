"""What planning a query gives, on the way and at the end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Protocol, Self

from circinus.pipelines.model.configuration import Configuration
from circinus.pipelines.model.plan import Plan
from circinus.planner.models.history import ConfigurationRecord
from circinus.planner.search.bill import Bill
from circinus.planner.search.failing import FailureCount

DRAWS = (
    "answered the same input differently: it is planned for the mean over draws, as if it was "
    "declared with draws: true"
)
"""Remark on an operator that draws and was not declared to."""
_UNDECIDED = "may be cheaper or more accurate than these plans"


class PlanningOutcome(StrEnum):
    """How planning ended."""

    FEASIBLE = "feasible"  # there is at least one plan
    INFEASIBLE = "infeasible"
    """No plan: everything was measured, or what is left has next to no chance."""
    EXHAUSTED = "exhausted"  # a limit came before any plan
    FAILED = "failed"  # no plan, because operators failed
    CANCELLED = "cancelled"  # the observer ended it; plans until then remain


class PlanningPhase(StrEnum):
    """What planning is at."""

    PROBING = "probing"  # a few measurements forecast what planning will cost
    SEARCHING = "searching"  # no feasible plan yet
    IMPROVING = "improving"  # a feasible plan is known; cheaper ones are looked for
    FINISHED = "finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortfall:
    """Why there is no plan, and what would have been enough."""

    # The SLOs that bind, among accuracy, latency and cost; empty when nothing, or too little, was
    # measured.
    binding: tuple[str, ...]
    # The measured plan that misses the SLOs by least; None when nothing was measured.
    closest: Plan | None
    sentence: str  # all this in words
    # SLO -> the value nearest to the one asked for that a measured plan would have met, the other
    # SLOs unchanged. An SLO is missing when relaxing it alone helps none.
    relaxations: Mapping[str, float]
    evidence: str  # what it rests on, in words
    # The same with the confidence of the estimates: a bound at the estimate itself may well be
    # missed.
    sure_relaxations: Mapping[str, float] = field(default_factory=dict)


class TrialState(StrEnum):
    """The state of a configuration."""

    FEASIBLE = "feasible"  # it has a plan
    INACCURATE = "inaccurate"
    LATE = "late"  # on every placement
    DEAR = "dear"  # accurate and in time, for more than a cost SLO allows
    UNDECIDED = "undecided"  # more inputs might decide
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What a configuration does, by its latest measurement.

    A later one on more inputs takes the place of an earlier one of the same configuration.
    """

    configuration: Configuration
    inputs: int  # that it has met, `>= 0`
    state: TrialState
    plan: Plan | None  # its cheapest; without any, its fastest deployment; None: it failed
    spent_s: float  # operator seconds that the search had paid by then
    elapsed_s: float  # wall-clock seconds since the start


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningFigures:
    """What a search has measured and paid so far."""

    measured: int  # configurations measured, failed ones included
    failed: int  # how many of them failed
    inputs: int  # measurements (configuration, input) used
    spent_s: float  # operator seconds paid
    bill: Bill = field(default_factory=Bill)  # what was expected, paid and saved
    failures: tuple[FailureCount, ...] = ()  # what failed, the most frequent first
    left_out: tuple[int, ...] = ()  # inputs that no figure stands on: they failed everywhere

    @property
    def saved_s(self) -> float:
        """Operator seconds that caches saved."""
        return self.bill.cache.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningProgress(PlanningFigures):
    """Where planning is."""

    phase: PlanningPhase  # what it is at
    profiling_left_s: float  # operator seconds that may still be paid, `>= 0`
    elapsed_s: float  # wall-clock seconds since the start
    time_left_s: float | None  # wall-clock seconds left, `>= 0`; None: not limited
    best: Plan | None  # the cheapest feasible plan so far; None: none yet
    plans: int  # how many plans the Pareto set holds
    # Plans that the latest measurement gave, cheapest first, in the Pareto set or not.
    new_plans: tuple[Plan, ...] = ()
    # What was measured since the last report, each reported once, in order.
    trials: tuple[Trial, ...] = ()
    # Wall-clock seconds waited, by what for: the limit of an endpoint, or workers to start
    waited: Mapping[str, float] = field(default_factory=dict)


class Observer(Protocol):
    """Receives reports of how planning goes, and may end it.

    Called in the thread that plans, which waits: after every configuration, and every few inputs
    within one. `progress` must not raise. `cancelled` is called after every input, and from a
    thread of the executor while operators run.
    """

    def progress(self, progress: PlanningProgress) -> None:
        """Receive where planning is."""

    def cancelled(self) -> bool:
        """Return whether planning shall end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningEnd(PlanningFigures):
    """How planning ended."""

    outcome: PlanningOutcome
    stopped_because: str  # in words
    # Why there is no plan; None when there is one, or planning was cancelled.
    shortfall: Shortfall | None
    remarks: tuple[str, ...] = ()  # what to know of the figures, in words
    seen_to_draw: tuple[str, ...] = ()  # operators, by name, though nobody declared it


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningResult(PlanningEnd):
    """What planning gave."""

    # The Pareto set in (cost, latency, accuracy, demand per tier), cheapest first.
    plans: tuple[Plan, ...]
    # What was measured, for later queries on the pipeline to learn from.
    configurations: tuple[ConfigurationRecord, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningSummary(PlanningEnd):
    """A `PlanningResult` without what only few of its many readers need."""

    plans: int  # how many there are
    best: Plan | None  # the cheapest of them; None: there is none

    @classmethod
    def of(cls, result: PlanningResult) -> Self:
        """Return the summary of a result."""
        end = {each.name: getattr(result, each.name) for each in fields(PlanningEnd)}
        return cls(**end, plans=len(result.plans), best=next(iter(result.plans), None))

    def after(self, earlier: PlanningSummary) -> PlanningSummary:
        """Return this one, which follows from an earlier one's measurements, with their cost."""
        of_runs = (each for each in earlier.remarks if not each.endswith(_UNDECIDED))
        return replace(
            self,
            spent_s=earlier.spent_s,
            bill=earlier.bill,
            remarks=(*of_runs, *self.remarks),
            seen_to_draw=earlier.seen_to_draw,
        )


def undecided_words(count: int | None) -> tuple[str, ...]:
    """Return a remark on configurations of which nobody knows whether they belong to the front."""
    if not count:
        return ()
    many, it = "1 configuration was", "it"
    if count > 1:
        many, it = f"{count} configurations were", "some"
    return (f"{many} not measured enough to say: {it} {_UNDECIDED}",)
