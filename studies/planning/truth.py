"""What a trace says is true: means over all its inputs, and the cheapest plan for SLOs."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from circinus.pipelines import checks
from circinus.pipelines.configuration import ConfigurationSpace, IndexArray
from circinus.pipelines.fitting import PlanningContext
from circinus.pipelines.infrastructure import Infrastructure
from circinus.pipelines.latency import Work, request_seconds
from circinus.pipelines.plan import Plan
from circinus.pipelines.profile import FloatArray
from circinus.pipelines.query import Query
from circinus.pipelines.slo import LatencyStatistic, Slo
from circinus.pipelines.trace import Trace
from circinus.planner.deployment.placement import Placements, placements
from circinus.planner.deployment.prediction import condensed, predict
from circinus.planner.deployment.shares import tightened

_SAME = 1e-9  # means of the same numbers in another order differ by less

LEVELS = {"easy": (0.7, 2.0), "medium": (0.85, 1.5), "hard": (0.9, 1.1)}
"""Part of a Pareto point's accuracy, multiple of its latency (Circinus 6.1, 6.4)."""


def check_level(level: str) -> None:
    """Require one of `LEVELS`."""
    checks.require(level in LEVELS, "slo", f"must be among {', '.join(LEVELS)}", level)


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """An SLO derived from a Pareto point, with what an oracle would make of it."""

    level: str
    slo: Slo
    oracle_s: float
    least_cost: float


@dataclass(eq=False)
class Truth:
    """A trace on an infrastructure, known completely."""

    trace: Trace
    infrastructure: Infrastructure
    statistic: LatencyStatistic = LatencyStatistic.MEAN
    accuracy: FloatArray = field(init=False)  # (C,)
    latency_s: FloatArray = field(init=False)  # (C,) least over placements, full shares
    profiling_s: FloatArray = field(init=False)  # (C,) per input

    def __post_init__(self) -> None:
        trace = self.trace
        space = ConfigurationSpace(trace.graph)
        numbers = space.numbers(trace.configurations.astype(np.int64))
        self._space = space
        self._row = {int(number): row for row, number in enumerate(numbers)}
        with np.errstate(invalid="ignore"):
            self.accuracy = trace.score.astype(float).mean(axis=1)  # NaN where one failed
            self.profiling_s = trace.latency_s.astype(float).sum(axis=1).mean(axis=1)
        self._spots = placements(trace.graph, self.infrastructure)
        scene = self._scene(Slo(accuracy=0.0, latency_s=1e9, latency_statistic=self.statistic))
        self.latency_s = np.array([self._least(scene, row) for row in range(len(numbers))])

    def _work(self, row: int) -> Work:
        return Work(
            operator_s=self.trace.latency_s[row].astype(float),
            output_bytes=self.trace.output_bytes[row].astype(float),
            input_bytes=self.trace.input_bytes.astype(float),
        )

    def satisfies(self, plan: Plan, slo: Slo) -> bool:
        """Give whether a plan, as it would be deployed, meets accuracy and latency."""
        return self.accurate(plan, slo) and self._latency_s(plan) <= slo.latency_s * (1 + _SAME)

    def accurate(self, plan: Plan, slo: Slo) -> bool:
        """Give whether a plan's configuration is accurate enough."""
        return self._accuracy(plan) >= slo.accuracy - _SAME

    def covers(self, plan: Plan) -> tuple[bool, bool]:
        """Give whether a plan's intervals of accuracy and latency hold the truth."""
        told = (plan.accuracy, self._accuracy(plan)), (plan.latency_s, self._latency_s(plan))
        accuracy, latency = (
            one.low * (1 - _SAME) <= true <= one.high * (1 + _SAME) for one, true in told
        )
        return accuracy, latency

    def _accuracy(self, plan: Plan) -> float:
        return float(self.accuracy[self._row_of(plan)])

    def _latency_s(self, plan: Plan) -> float:
        """Give a plan's latency as it would be deployed, in the statistic."""
        work = self._work(self._row_of(plan))
        seconds = request_seconds(self.trace.graph, self.infrastructure, work, plan.deployment)
        return float(self.statistic.of(seconds))

    def _row_of(self, plan: Plan) -> int:
        return self._row[self._space.number(plan.configuration)]

    def slos(self, level: str) -> list[Slo]:
        """Give the SLOs of a level, one per Pareto point, fastest point first."""
        check_level(level)
        part, multiple = LEVELS[level]
        return [
            Slo(
                accuracy=float(part * self.accuracy[row]),
                latency_s=float(multiple * self.latency_s[row]),
                latency_statistic=self.statistic,
            )
            for row in self._pareto()
        ]

    def oracle_s(self, slo: Slo) -> float | None:
        """Give the seconds of 20 inputs of the cheapest to profile that satisfies; None: none."""
        feasible = self._feasible(slo)
        return self._cheapest_s(feasible) if len(feasible) else None

    def goals(self, level: str) -> list[Goal]:
        """Give the SLOs of a level, one per Pareto point, with what an oracle makes of them."""
        found = []
        for slo in self.slos(level):
            feasible = self._feasible(slo)  # holds the Pareto point
            oracle_s, least_cost = self._cheapest_s(feasible), self._least_cost(slo, feasible)
            found.append(Goal(level=level, slo=slo, oracle_s=oracle_s, least_cost=least_cost))
        return found

    def _cheapest_s(self, feasible: IndexArray) -> float:
        return float(20 * self.profiling_s[feasible].min())

    def _feasible(self, slo: Slo) -> IndexArray:
        accurate = self.accuracy >= slo.accuracy - _SAME
        return np.flatnonzero(accurate & (self.latency_s <= slo.latency_s))

    def _pareto(self) -> list[int]:
        best, rows = -1.0, []
        for row in np.lexsort((-self.accuracy, self.latency_s)):
            if self.accuracy[row] > best + _SAME:
                best = float(self.accuracy[row])
                rows.append(int(row))
        return rows

    def _least(self, scene: PlanningContext, row: int) -> float:
        work = condensed(scene, self._work(row))
        spots = self._spots
        return float(predict(scene, spots, work, spots.full_steps).latency_s.min())

    def _scene(self, slo: Slo) -> PlanningContext:
        query = Query(pipeline=self.trace.graph.name, slo=slo)
        return PlanningContext(
            graph=self.trace.graph, infrastructure=self.infrastructure, query=query
        )

    def _least_cost(self, slo: Slo, feasible: np.ndarray) -> float:
        """Give the least cost; configurations that cannot beat the best so far are passed over."""
        scene = self._scene(slo)
        bounds = np.array([self._bound(scene, int(row)) for row in feasible])
        best = np.inf
        for i in np.argsort(bounds):
            if bounds[i] >= best:
                break
            work = condensed(scene, self._work(int(feasible[i])))
            found = tightened(scene, self._spots, work)
            if len(found):
                best = min(best, float(found.cost_usd_per_hour.min()))
        return best

    def _bound(self, scene: PlanningContext, row: int) -> float:
        """Give what no allocation of a chain costs less than (Cauchy and Schwarz)."""
        spots: Placements = self._spots
        full = predict(scene, spots, condensed(scene, self._work(row)), spots.full_steps)
        price = np.array([tier.price_usd_per_hour for tier in self.infrastructure.tiers])
        fixed = full.latency_s - full.service_s[:, price > 0].sum(axis=1)
        spare = scene.slo.latency_s - fixed
        weight = np.square(np.sqrt(full.service_s * price).sum(axis=1))
        late = full.latency_s > scene.slo.latency_s * (1 + _SAME)
        cost = np.where(late | (spare <= 0), np.inf, weight / np.where(spare > 0, spare, 1.0))
        return float(cost.min()) * (1 - _SAME)
