"""The truth of a trace, means over all its inputs, and the plans of a run judged by it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from circinus.pipelines import checks
from circinus.pipelines.io.trace import Trace
from circinus.pipelines.model.configuration import ConfigurationSpace, IndexArray
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.latency import Work, request_seconds
from circinus.pipelines.model.plan import DemandItem, Plan
from circinus.pipelines.model.profile import FloatArray
from circinus.pipelines.model.query import PlanningContext, Query
from circinus.pipelines.model.restrictions import Restrictions
from circinus.pipelines.model.slo import SURE, LatencyStatistic, Slo, SloState
from circinus.planner.deployment.callers import Callers
from circinus.planner.deployment.costs import usd_of_inputs
from circinus.planner.deployment.pareto import undominated
from circinus.planner.deployment.placement import Placements, placements
from circinus.planner.deployment.prediction import Prediction, condensed, predict
from circinus.planner.deployment.shares import tightened
from circinus.planner.search.result import PlanningProgress
from circinus.scheduler.problem import PlanOption

_SECONDS_PER_HOUR = 3600.0
_SAME = 1e-9  # means of the same numbers in another order differ by less

# deviates: medium-accuracy
LEVELS = {"easy": (0.7, 2.0), "medium": (0.85, 1.5), "hard": (0.9, 1.1)}
"""Part of a Pareto point's accuracy, multiple of its latency (Circinus 6.1, 6.4). Appendix F has
0.8 where 6.1 has 0.85, and calls both medium."""

_DRAWN = 5  # stream of a seed


def level_factors(level: str) -> tuple[float, float]:
    """Return the part of a point's accuracy and the multiple of its latency of a level.

    `hard-medium` is the accuracy of hard with the latency of medium: the paper varies either alone
    (6.4, appendix F). InvalidInput if there is no such level.
    """
    accuracy, dash, latency = level.partition("-")
    known = {accuracy, latency if dash else accuracy} <= LEVELS.keys()
    rule = f"must be among {', '.join(LEVELS)}, or two of them, ACCURACY-LATENCY"
    checks.require(known, "slo", rule, level)
    return LEVELS[accuracy][0], LEVELS[latency if dash else accuracy][1]


SloT = TypeVar("SloT")


def drawn(points: Sequence[SloT], count: int, seed: int) -> list[SloT]:
    """Return the SLOs of so many queries: Pareto points drawn uniformly, repeats allowed (6.1)."""
    places = np.random.default_rng([seed, _DRAWN]).integers(len(points), size=count)
    return [points[place] for place in places.tolist()]


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """An SLO derived from a Pareto point, with what an oracle would make of it."""

    level: str
    slo: Slo
    oracle_s: float
    least_cost: float


@dataclass(eq=False)
class GroundTruth:
    """A trace on an infrastructure, known completely."""

    trace: Trace
    infrastructure: Infrastructure
    statistic: LatencyStatistic = LatencyStatistic.MEAN
    accuracy: FloatArray = field(init=False)  # (C,)
    latency_s: FloatArray = field(init=False)  # (C,) least over placements, full shares
    profiling_s: FloatArray = field(init=False)  # (C,) per input

    def __post_init__(self) -> None:
        trace = self.trace
        self._space = ConfigurationSpace(trace.graph)
        numbers = self._space.numbers(trace.configurations.astype(np.int64))
        self._row = {int(number): row for row, number in enumerate(numbers)}
        with np.errstate(invalid="ignore"):
            self.accuracy = trace.score.astype(float).mean(axis=1)  # NaN where one failed
            self.profiling_s = trace.latency_s.astype(float).sum(axis=1).mean(axis=1)
        self._spots = placements(trace.graph, self.infrastructure)
        self._callers = Callers.of(trace.graph, self.infrastructure, Restrictions())
        scene = self._scene(Slo(accuracy=0.0, latency_s=1e9, latency_statistic=self.statistic))
        full = (self._in_full(scene, row) for row in range(len(numbers)))
        self.latency_s = np.array([prediction.latency_s.min() for prediction in full])

    def _work(self, row: int) -> Work:
        return Work(
            operator_s=self.trace.latency_s[row].astype(float),
            output_bytes=self.trace.output_bytes[row].astype(float),
            input_bytes=np.tile(self.trace.input_bytes.astype(float), self.trace.draws),
            waited_s=None
            if self.trace.waited_s is None
            else self.trace.waited_s[row].astype(float),
            used=None if self.trace.used is None else self.trace.used[row].astype(float),
        )

    def satisfies(self, plan: Plan, slo: Slo) -> bool:
        """Return whether a plan, as it would be deployed, meets accuracy and latency."""
        return self.accurate(plan, slo) and self._latency_s(plan) <= slo.latency_s * (1 + _SAME)

    def accurate(self, plan: Plan, slo: Slo) -> bool:
        """Return whether a plan's configuration is accurate enough."""
        return self._accuracy(plan) >= slo.accuracy - _SAME

    def covers(self, plan: Plan) -> tuple[bool, bool]:
        """Return whether a plan's intervals of accuracy and latency hold the truth."""
        pairs = (plan.accuracy, self._accuracy(plan)), (plan.latency_s, self._latency_s(plan))
        accuracy, latency = (
            one.low * (1 - _SAME) <= true <= one.high * (1 + _SAME) for one, true in pairs
        )
        return accuracy, latency

    def _accuracy(self, plan: Plan) -> float:
        return float(self.accuracy[self._row_of(plan)])

    def _latency_s(self, plan: Plan) -> float:
        """Return a plan's latency as it would be deployed, in the statistic."""
        work = self._work(self._row_of(plan))
        seconds = request_seconds(self.trace.graph, self.infrastructure, work, plan.deployment)
        return float(self.statistic.of(seconds))

    def _row_of(self, plan: Plan) -> int:
        return self._row[self._space.number(plan.configuration)]

    def slos(self, level: str) -> list[Slo]:
        """Return the SLOs of a level, one per Pareto point, fastest point first."""
        part, multiple = level_factors(level)
        return [
            Slo(
                accuracy=float(part * self.accuracy[row]),
                latency_s=float(multiple * self.latency_s[row]),
                latency_statistic=self.statistic,
            )
            for row in self._pareto()
        ]

    def oracle_s(self, slo: Slo) -> float | None:
        """Return the seconds of 20 inputs of the cheapest that satisfies; None: none."""
        feasible = self._feasible(slo)
        return self._cheapest_s(feasible) if len(feasible) else None

    def goals(self, level: str) -> list[Goal]:
        """Return the SLOs of a level, one per Pareto point, with what an oracle makes of them."""
        goals = []
        for slo in self.slos(level):
            feasible = self._feasible(slo)  # holds the Pareto point
            oracle_s, least_cost = self._cheapest_s(feasible), self._least_cost(slo, feasible)
            goals.append(Goal(level=level, slo=slo, oracle_s=oracle_s, least_cost=least_cost))
        return goals

    def options(self, slo: Slo) -> list[PlanOption]:
        """Return all plans that truly satisfy and that none beats in cost and demands.

        What a planner that knows the truth would hand to the scheduler, the cheapest first.
        """
        scene, tiers = self._scene(slo), self.infrastructure.tiers
        each = [
            tightened(scene, self._spots_of(row), condensed(scene, self._work(row)))
            for row in self._feasible(slo).tolist()
        ]
        cost = np.concatenate([layouts.cost_usd_per_hour for layouts in each])
        demand = np.concatenate([layouts.demand for layouts in each])
        shared = [t for t, tier in enumerate(tiers) if not tier.dedicated]
        front = undominated(np.column_stack([cost, demand[:, shared]]))
        return [
            PlanOption(
                plan_id=f"oracle-{place}",
                demand=tuple(
                    DemandItem(tier.name, float(part))
                    for tier, part in zip(tiers, demand[row], strict=True)
                    if part > 0
                ),
                cost_usd_per_hour=float(cost[row]),
            )
            for place, row in enumerate(front[np.argsort(cost[front])].tolist())
        ]

    def unshared(self, slo: Slo) -> PlanOption:
        """Return the fastest configuration that is accurate enough, on whole machines."""
        feasible = self._feasible(slo)
        row = int(feasible[np.argmin(self.latency_s[feasible])])
        full = self._in_full(self._scene(slo), row)
        steps = self._spots_of(row).full_steps[int(np.argmin(full.latency_s))]
        tiers = [tier for tier, part in zip(self.infrastructure.tiers, steps, strict=True) if part]
        return PlanOption(
            plan_id="unshared",
            demand=tuple(DemandItem(tier.name, 1.0) for tier in tiers),
            cost_usd_per_hour=sum(tier.price_usd_per_hour for tier in tiers),
        )

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

    def _in_full(self, scene: PlanningContext, row: int) -> Prediction:
        """Return what a configuration would take in whole machines."""
        work, spots = condensed(scene, self._work(row)), self._spots_of(row)
        return predict(scene, spots, work, spots.full_steps)

    def _spots_of(self, row: int) -> Placements:
        """Return the placements on which a configuration can be."""
        if not self._callers.any_calls:
            return self._spots
        number = int(self._space.numbers(self.trace.configurations[[row]].astype(np.int64))[0])
        configuration = self._space.configuration(number)
        return self._spots.where(self._callers, self._callers.called(configuration))

    def _scene(self, slo: Slo) -> PlanningContext:
        graph = self.trace.graph
        query = Query(pipeline=graph.name, slo=slo)
        return PlanningContext(graph=graph, infrastructure=self.infrastructure, query=query)

    def _least_cost(self, slo: Slo, feasible: np.ndarray) -> float:
        """Return the least cost; configurations that cannot beat the best are passed over."""
        scene = self._scene(slo)
        bounds = np.array([self._bound(scene, int(row)) for row in feasible])
        best = np.inf
        for i in np.argsort(bounds):
            if bounds[i] >= best:
                break
            work = condensed(scene, self._work(int(feasible[i])))
            layouts = tightened(scene, self._spots_of(int(feasible[i])), work)
            if len(layouts):
                best = min(best, float(layouts.cost_usd_per_hour.min()))
        return best

    def _bound(self, scene: PlanningContext, row: int) -> float:
        """Return what no allocation of a chain costs less than (Cauchy and Schwarz)."""
        full = self._in_full(scene, row)
        price = np.array([tier.price_usd_per_hour for tier in self.infrastructure.tiers])
        usd = float(usd_of_inputs(self._work(row)).mean())
        fixed = full.latency_s - full.service_s[:, price > 0].sum(axis=1)
        spare = scene.slo.latency_s - fixed
        weight = np.square(np.sqrt(full.service_s * price).sum(axis=1))
        late = full.latency_s > scene.slo.latency_s * (1 + _SAME)
        cost = np.where(late | (spare <= 0), np.inf, weight / np.where(spare > 0, spare, 1.0))
        # Of requests one after the other, those of the slowest plan cost least by the hour.
        calls = _SECONDS_PER_HOUR * usd / scene.slo.latency_s if usd else 0.0
        return (float(cost.min()) + calls) * (1 - _SAME)


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
    """The figures of a plan that a user saw."""

    true: bool  # whether it truly satisfies the SLO
    met: bool  # whether it was ever shown with every SLO met
    accuracy_covered: bool  # whether the interval shown first held the true accuracy
    latency_covered: bool  # whether that of the latency did
    latency_sure: bool  # whether that was one of 95 %; few inputs may allow for less


@dataclass(slots=True, kw_only=True)
class Recorder:
    """An observer that judges every plan announced by the truth."""

    truth: GroundTruth  # of the run
    slo: Slo  # asked for
    first_only: bool  # whether the first true plan ends the run
    before_s: float = 0.0  # profiling seconds that were spent before the run
    announced: list[Announced] = field(default_factory=list)  # each measurement's cheapest plan
    shown: dict[str, Shown] = field(default_factory=dict)  # the same plans, each once, by id
    steps: int = 0  # measurements so far
    _inputs: int = -1

    @property
    def first_true(self) -> Announced | None:
        """The first plan that truly satisfies; None: there was none."""
        return next((announcement for announcement in self.announced if announcement.true), None)

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
        """Judge the cheapest plan of the latest measurement."""
        if progress.inputs != self._inputs:
            self.steps += 1
            self._inputs = progress.inputs
        if progress.new_plans:
            self.judge(progress.new_plans[0], progress.spent_s, progress.elapsed_s)

    def judge(self, plan: Plan, spent_s: float, elapsed_s: float = 0.0) -> bool:
        """Record a plan that is announced after so many profiling seconds; return its truth."""
        true, cost = self._entry_of(plan).true, plan.cost_usd_per_hour
        announcement = Announced(spent_s, elapsed_s, self.steps, true, cost)
        if not self.announced or self.announced[-1] != announcement:
            self.announced.append(announcement)
        return announcement.true

    def cancelled(self) -> bool:
        """Return whether the first true plan is enough and there."""
        return self.first_only and self.first_true is not None

    def cost_ratio(self, mark_s: float, least_cost: float) -> float | None:
        """Return the cost of the cheapest true plan announced by then over the true optimum."""
        if self.first_only:
            return None
        costs = [a.cost for a in self.announced if a.true and a.spent_s <= mark_s]
        if not costs:
            return None
        return min(costs) / least_cost if least_cost > 0 else 1.0

    def _entry_of(self, plan: Plan) -> Shown:
        if plan.id not in self.shown:
            accuracy, latency = self.truth.covers(plan)
            self.shown[plan.id] = Shown(
                true=self.truth.satisfies(plan, self.slo),
                met=False,
                accuracy_covered=accuracy,
                latency_covered=latency,
                latency_sure=plan.latency_s.confidence >= SURE,
            )
        entry = self.shown[plan.id]
        states = plan.states(self.slo).values()
        entry.met = entry.met or all(state is SloState.MET for state in states)
        return entry
