"""Findings of a search: the configurations measured, and the plans that follow from them."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from dataclasses import replace
from math import inf

from circinus.pipelines.model.plan import Plan
from circinus.pipelines.model.slo import Estimate
from circinus.planner.deployment.costs import hourly, ranked_by
from circinus.planner.models.latency_tail import LatencyTail, lineage_cells
from circinus.planner.search.failing import FailureCount
from circinus.planner.search.measuring import FailedMeasurement
from circinus.planner.search.plans import announced, merged
from circinus.planner.search.result import TrialState
from circinus.planner.strategy.protocol import Ending, Judgement, Measured, SearchSetting

_AGAIN = 1.5  # times as many inputs: the interval of the latency is then a fifth shorter


class Findings:
    """Grows with every measurement. Of a configuration the newest measurement counts."""

    def __init__(
        self,
        setting: SearchSetting,
        most_plans: int,
        margin_confidence: float | None,
    ) -> None:
        self._setting = setting
        self._most_plans = most_plans  # of the Pareto set, `>= 1`
        self._confidence = margin_confidence  # see `planner.search.plans.upper_ratio`
        self._tightened: dict[int, int] = {}  # inputs at which a configuration was, by number
        self._announced: dict[int, tuple[Plan, ...]] = {}  # by number, beaten ones included
        self.tail = LatencyTail()  # of operators' seconds, over all configurations
        self.measured: dict[int, Measured] = {}  # by number, without those that failed
        self.failed: list[FailedMeasurement] = []
        self.plans: tuple[Plan, ...] = ()  # the Pareto set, cheapest first
        self.newest: tuple[Plan, ...] = ()  # from the latest measurements
        self.fruitless = 0  # new configurations since the cheapest plan

    @property
    def count(self) -> int:
        """How many configurations were measured, failed ones included."""
        return len(self.measured) + len(self.failed)

    @property
    def inputs(self) -> int:
        """How many inputs they met together."""
        return sum(m.inputs for m in self.measured.values()) + sum(f.inputs for f in self.failed)

    def inputs_of(self, number: int) -> int:
        """Return how many inputs a configuration met, by number; 0 where it failed."""
        return self.measured[number].inputs if number in self.measured else 0

    def fail(self, failed: FailedMeasurement) -> None:
        """Record a failed measurement: earlier plans of the configuration are withdrawn."""
        self.failed.append(failed)
        withdrawn = self.measured.pop(failed.number, None)
        if withdrawn is not None:
            self._announced.pop(failed.number, None)
            self._tightened.pop(failed.number, None)
            self.plans = self._without(withdrawn)

    def observed(self, measured: Measured) -> Measured:
        """Record a measurement, and return it as the strategy observes it."""
        self.measured[measured.number] = measured
        cells = lineage_cells(self._setting.context.graph, measured.configuration)
        self.tail.add(cells, measured.work)
        # What this configuration promised before is withdrawn until it is judged anew.
        others = self._without(measured)
        best = hourly(self._setting.context, others[0]) if others else None
        return replace(measured, best_cost=best)

    def judge(
        self, measured: Measured, judgement: Judgement, *, is_new: bool, anew: bool = False
    ) -> tuple[Plan, ...]:
        """Announce a configuration that was observed, and return its plans, cheapest first.

        `is_new` means that this was its first measurement, `anew` that no earlier plan stands.
        """
        before = self._cheapest
        in_time = measured.latency_s <= self._setting.slo.latency_s
        is_good = judgement.enough and in_time
        plans = self._tightest(measured, judgement.accuracy, anew=anew) if is_good else ()
        if not is_good:
            self._tightened.pop(measured.number, None)
        self.newest = (*self.newest, *plans)
        self._announced[measured.number] = plans
        both = (*self._without(measured), *plans)
        self.plans = merged(self._setting.context, both, self._most_plans)
        self.fruitless = 0 if self._cheapest < before else self.fruitless + is_new
        return plans

    # deviates: plans-looked-at-again
    @property
    def behind(self) -> tuple[Measured, ...]:
        """Configurations of the Pareto set that met more inputs than their plans state."""
        return tuple(
            one
            for number, one in self.measured.items()
            if one.inputs > self._tightened.get(number, one.inputs)
            and any(plan.configuration == one.configuration for plan in self.plans)
        )

    def failures_bind(self, failures: Sequence[FailureCount], left_out: Collection[int]) -> bool:
        """Return whether, but for a failure, a configuration might have been enough."""
        if not self.measured:  # a limit may come before any configuration fails
            return bool(self.failed or failures)
        slo = self._setting.slo
        for one in self.measured.values():
            failed = {failure.input for failure in one.profile.failures} - set(left_out)
            at_best = one.accuracy.value + len(failed) / one.inputs
            if failed and at_best >= slo.accuracy and one.latency_s <= slo.latency_s:
                return True
        return False

    @property
    def _cheapest(self) -> float:
        return ranked_by(self._setting.context, self.plans[0]) if self.plans else inf

    def _without(self, measured: Measured) -> tuple[Plan, ...]:
        """Return the plans of all others; where none of its own beats any, those of the front."""
        mine = measured.configuration
        if all(plan.configuration != mine for plan in self.plans):
            return self.plans
        others = (plans for number, plans in self._announced.items() if number != measured.number)
        every = tuple(itertools.chain.from_iterable(others))
        return merged(self._setting.context, every, self._most_plans)

    def _tightest(
        self, measured: Measured, accuracy: Estimate | None, *, anew: bool
    ) -> tuple[Plan, ...]:
        """Tighten a configuration's plans as far as the interval of its latency allows.

        Until it met so many more inputs that they may be others, its earlier plans stand.
        """
        inputs, number = measured.inputs, measured.number
        anew |= inputs >= self._setting.measurable
        if not anew and inputs < _AGAIN * self._tightened.get(number, 0):
            return self._announced[number]
        self._tightened[number] = inputs
        most, confidence = self._most_plans, self._confidence
        return announced(self._setting, measured, self.tail, accuracy, most, confidence)


def state_of(
    setting: SearchSetting, measured: Measured, judgement: Judgement, *, has_plan: bool
) -> TrialState:
    """Return the state of a configuration that did not fail."""
    slo, accuracy = setting.slo, judgement.accuracy or measured.accuracy
    if has_plan:
        return TrialState.FEASIBLE
    if measured.latency_s > slo.latency_s:
        return TrialState.LATE
    if measured.ending is Ending.INACCURATE or accuracy.high < slo.accuracy:
        return TrialState.INACCURATE
    bounds = (slo.cost_usd_per_hour, slo.cost_usd_per_1000_requests)
    if judgement.enough and any(bound is not None for bound in bounds):
        return TrialState.DEAR
    return TrialState.UNDECIDED
