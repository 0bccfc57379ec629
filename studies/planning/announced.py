"""The plans that a run of planning announces, judged by what is true."""

from __future__ import annotations

from dataclasses import dataclass, field

from circinus.pipelines.plan import Plan
from circinus.pipelines.slo import SURE, Slo, SloState
from circinus.planner.search.result import PlanningProgress
from circinus.studies.planning.truth import Truth


@dataclass(frozen=True, slots=True)
class Announced:
    """A plan, and when it was announced."""

    spent_s: float  # profiling seconds by then
    elapsed_s: float  # seconds of the search's clock by then
    steps: int  # measurements by then
    true: bool  # whether it truly satisfies the SLO
    cost: float  # US dollars per hour


@dataclass(slots=True, kw_only=True)
class Shown:
    """What a user was shown of a plan."""

    true: bool  # whether it truly satisfies the SLO
    met: bool  # whether it was ever shown with every SLO met
    accuracy_covered: bool  # whether the interval shown first held the true accuracy
    latency_covered: bool  # whether that of the latency did
    latency_sure: bool  # whether that was one of 95 %; few inputs may allow for less


@dataclass(slots=True, kw_only=True)
class Recorder:
    """An observer that judges every plan announced by the truth."""

    truth: Truth  # of the run
    slo: Slo  # asked for
    first_only: bool  # whether the first true plan ends the run
    before_s: float = 0.0  # profiling seconds that were spent before the run
    # plans so far, each measurement's cheapest
    announced: list[Announced] = field(default_factory=list)
    shown: dict[str, Shown] = field(default_factory=dict)  # the same plans, each once, by id
    steps: int = 0  # measurements so far
    _inputs: int = -1

    @property
    def first_true(self) -> Announced | None:
        """The first plan that truly satisfies; None: there was none."""
        return next((seen for seen in self.announced if seen.true), None)

    @property
    def seconds(self) -> float | None:
        """Profiling seconds of the run until the first true plan; None: there was none."""
        first = self.first_true
        return None if first is None else first.spent_s - self.before_s

    @property
    def first_answer_true(self) -> bool | None:
        """Whether the first plan announced is true; None: none was announced."""
        return self.announced[0].true if self.announced else None

    def progress(self, progress: PlanningProgress) -> None:
        """Judge the cheapest of the plans found by the latest measurement."""
        if progress.inputs != self._inputs:
            self.steps += 1
            self._inputs = progress.inputs
        if progress.found:
            self.judge(progress.found[0], progress.spent_s, progress.elapsed_s)

    def judge(self, plan: Plan, spent_s: float, elapsed_s: float = 0.0) -> bool:
        """Take in a plan that is announced after so many profiling seconds; give if it is true."""
        true, cost = self._shown(plan).true, plan.cost_usd_per_hour
        seen = Announced(spent_s, elapsed_s, self.steps, true, cost)
        if not self.announced or self.announced[-1] != seen:
            self.announced.append(seen)
        return seen.true

    def cancelled(self) -> bool:
        """Give whether the first true plan is enough and there."""
        return self.first_only and self.first_true is not None

    def cost_ratio(self, mark_s: float, least_cost: float) -> float | None:
        """Give the cost of the cheapest true plan announced by then over the true optimum."""
        if self.first_only:
            return None
        costs = [a.cost for a in self.announced if a.true and a.spent_s <= mark_s]
        if not costs:
            return None
        return min(costs) / least_cost if least_cost > 0 else 1.0

    def _shown(self, plan: Plan) -> Shown:
        if plan.id not in self.shown:
            accuracy, latency = self.truth.covers(plan)
            self.shown[plan.id] = Shown(
                true=self.truth.satisfies(plan, self.slo),
                met=False,
                accuracy_covered=accuracy,
                latency_covered=latency,
                latency_sure=plan.latency_s.confidence >= SURE,
            )
        shown = self.shown[plan.id]
        states = plan.states(self.slo).values()
        shown.met = shown.met or all(state is SloState.MET for state in states)
        return shown
