"""The plans that a run of planning announces, judged by what is true."""

from __future__ import annotations

from dataclasses import dataclass, field

from pipelines.plan import Plan
from pipelines.slo import SURE, Slo, SloState
from planner.result import Progress
from studies.planning_truth import Truth


@dataclass(frozen=True, slots=True)
class Announced:
    """A plan, and when it was announced.

    Attributes:
        spent_s: Profiling seconds by then.
        elapsed_s: Seconds of the search's clock by then.
        steps: Measurements by then.
        true: Whether it truly satisfies the SLO.
        cost: US dollars per hour.
    """

    spent_s: float
    elapsed_s: float
    steps: int
    true: bool
    cost: float


@dataclass(slots=True, kw_only=True)
class Shown:
    """What a user was shown of a plan.

    Attributes:
        true: Whether it truly satisfies the SLO.
        met: Whether it was ever shown with every SLO met.
        accuracy_covered: Whether the interval shown first held the true accuracy.
        latency_covered: Whether that of the latency did.
        latency_sure: Whether that was one of 95 %; few inputs may allow for less.
    """

    true: bool
    met: bool
    accuracy_covered: bool
    latency_covered: bool
    latency_sure: bool


@dataclass(slots=True, kw_only=True)
class Recorder:
    """An observer that judges every plan announced by the truth.

    Attributes:
        truth: Of the run.
        slo: Asked for.
        first_only: Whether the first true plan ends the run.
        announced: Plans so far, each measurement's cheapest.
        shown: The same plans, each once, by id.
        heard: Whether a search reported anything at all.
        steps: Measurements so far.
    """

    truth: Truth
    slo: Slo
    first_only: bool
    announced: list[Announced] = field(default_factory=list)
    shown: dict[str, Shown] = field(default_factory=dict)
    heard: bool = False
    steps: int = 0
    _inputs: int = -1

    @property
    def first_true(self) -> Announced | None:
        """The first plan that truly satisfies; None: there was none."""
        return next((seen for seen in self.announced if seen.true), None)

    @property
    def first_answer_true(self) -> bool | None:
        """Whether the first plan announced is true; None: none was announced."""
        return self.announced[0].true if self.announced else None

    def progress(self, progress: Progress) -> None:
        """Judge the cheapest of the plans found by the latest measurement."""
        self.heard = True
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
