"""What a search has found: the configurations measured, and the plans that follow from them."""

from __future__ import annotations

from math import inf

from pipelines.plan import Plan
from pipelines.slo import Estimate
from planner.caution import announced
from planner.latency_tail import LatencyTail, lineage_cells
from planner.measuring import Failed, Measured
from planner.placement import Placements
from planner.plans import merged
from planner.prediction import Scene
from planner.strategy import Judgement, Observation

_RETRY_GROWTH = 1.2  # times as many inputs: the interval is then a tenth shorter


class Findings:
    """Grows with every measurement. Of a configuration the newest measurement counts.

    Args:
        scene: The query and where it runs.
        placements: All that there are.
        population: Number of inputs, `>= 1`.
        most_plans: Size of the Pareto set, `>= 1`.
        caution: Confidence of the latency interval whose upper end must meet the SLO; None: the
            estimate itself must.
    """

    def __init__(
        self,
        *,
        scene: Scene,
        placements: Placements,
        population: int,
        most_plans: int,
        caution: float | None,
    ) -> None:
        self._scene = scene
        self._placements = placements
        self._population = population
        self._most_plans = most_plans
        self._caution = caution
        self.spread = LatencyTail()
        """Of operators' seconds, over all configurations."""
        self._unable: dict[int, int] = {}  # inputs at which a configuration gave no plan
        self.measured: dict[int, Measured] = {}
        """By number, without those that failed."""
        self.failed: list[Failed] = []
        self.plans: tuple[Plan, ...] = ()
        """The Pareto set, cheapest first."""
        self.newest: tuple[Plan, ...] = ()
        """Plans that the latest measurements gave."""
        self.fruitless = 0
        """New configurations since the cheapest plan was found."""

    @property
    def count(self) -> int:
        """How many configurations were measured, failed ones included."""
        return len(self.measured) + len(self.failed)

    @property
    def inputs(self) -> int:
        """How many inputs they met together."""
        return sum(m.inputs for m in self.measured.values()) + sum(f.inputs for f in self.failed)

    def fail(self, failed: Failed, number: int) -> None:
        """Take in that measuring a configuration failed: what it gave before is withdrawn."""
        self.failed.append(failed)
        withdrawn = self.measured.pop(number, None)
        if withdrawn is not None:
            self.plans = self._without(withdrawn)

    def observed(self, measured: Measured) -> Observation:
        """Take in a measurement, and give what the strategy is told of it."""
        self.measured[measured.number] = measured
        cells = lineage_cells(self._scene.graph, measured.configuration)
        self.spread.add(cells, measured.work)
        # What this configuration promised before is withdrawn until it is judged anew.
        others = self._without(measured)
        return measured.observation(others[0].cost_usd_per_hour if others else None)

    def judge(self, measured: Measured, judgement: Judgement, *, is_new: bool) -> None:
        """Announce the plans of a configuration that was observed, if it has any.

        Args:
            measured: The configuration.
            judgement: What the strategy says of it.
            is_new: Whether this was its first measurement.
        """
        before = self._cheapest
        in_time = measured.latency_s <= self._scene.slo.latency_s
        promising = judgement.enough and in_time
        found = self._feasible(measured, judgement.accuracy) if promising else ()
        self.newest = (*self.newest, *found)
        both = (*self._without(measured), *found)
        self.plans = merged(self._scene, both, self._most_plans)
        self.fruitless = 0 if self._cheapest < before else self.fruitless + is_new

    @property
    def _cheapest(self) -> float:
        return self.plans[0].cost_usd_per_hour if self.plans else inf

    def _without(self, measured: Measured) -> tuple[Plan, ...]:
        """Give the plans of all others."""
        mine = measured.configuration
        return tuple(plan for plan in self.plans if plan.configuration != mine)

    def _feasible(self, measured: Measured, accuracy: Estimate | None) -> tuple[Plan, ...]:
        """Tighten a configuration's plans as far as the interval of its latency allows.

        One that gave none is not tried again before it has met so many more inputs that it may.
        """
        inputs, number = measured.inputs, measured.number
        all_met = inputs >= self._population
        if not all_met and inputs < _RETRY_GROWTH * self._unable.get(number, 0):
            return ()
        plans = announced(
            self._scene,
            self._placements,
            measured,
            self.spread,
            accuracy=accuracy,
            population=self._population,
            most=self._most_plans,
            confidence=self._caution,
        )
        if not plans:
            self._unable[number] = inputs
        return plans
