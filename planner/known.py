"""What earlier measurements say of a query, nothing measured anew.

Profiles are of the reference machine: placements, allocations and costs follow from them,
for any infrastructure and any SLO. So a question that begins with "what if" is answered at
once, and replanning (Circinus 4.3) starts from the answer: what was measured of the same data
holds whatever happens to links, prices and objectives. When the data changed, earlier figures are
history: a hint, no answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pipelines.configuration import Configuration, ConfigurationSpace
from pipelines.evaluation import StoppingRule
from pipelines.graph import PipelineGraph
from pipelines.infrastructure import Infrastructure
from pipelines.plan import Plan
from pipelines.profile import Profile
from pipelines.query import Query
from pipelines.slo import Estimate
from planner.caution import CAUTION, announced
from planner.history import ConfigurationRecord, holds
from planner.latency_tail import LatencyTail, lineage_cells
from planner.measuring import Bench, Failed, LatencyLooks, Measured, Wanted, measure_each
from planner.placement import Placements, placements
from planner.plans import merged
from planner.prediction import Scene, scene_of
from planner.result import Outcome, PlanningResult, Shortfall
from planner.shortfall import shortfall
from planner.strategy import Setting, StrategyFactory

_MOST_PLANS = 24


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Known:
    """What was measured of a query's pipeline and data.

    Attributes:
        graph: The pipeline.
        profiles: One per configuration, over the first inputs of one order.
        population: Number of inputs there are.
        trusted: Configurations taken to be accurate enough for an accuracy SLO, whatever the
            stopping rule says, with that SLO: a strategy may know more than the rule.
    """

    graph: PipelineGraph
    profiles: Sequence[Profile]
    population: int
    trusted: Mapping[Configuration, float]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Answer:
    """What is known of a query under some circumstances.

    Attributes:
        scene: The query, and where it would run.
        placements: All that there are.
        plans: The Pareto set, cheapest first.
        measured: Configurations with figures that restrictions allow.
        accurate: Those of them that are accurate enough.
        failed: Configurations that failed.
        shortfall: Why there is no plan; None when there is one.
    """

    scene: Scene
    placements: Placements
    plans: tuple[Plan, ...]
    measured: tuple[Measured, ...]
    accurate: frozenset[Configuration]
    failed: tuple[Failed, ...]
    shortfall: Shortfall | None


def answer(
    query: Query,
    infrastructure: Infrastructure,
    known: Known,
    strategy: StrategyFactory,
    rule: StoppingRule | None,
    caution: float | None = CAUTION,
) -> Answer:
    """Give the plans of a query as far as they were measured.

    Args:
        query: What to plan.
        infrastructure: Where it would run.
        known: What was measured.
        strategy: Makes what judges which configurations are accurate enough, as a search would
            that had measured all of them.
        rule: What it is told of scores; None: nothing.
        caution: Of the interval that plans are tightened by, see `planner.search.SearchSettings`.

    Raises:
        InvalidInput: If the query does not fit pipeline and infrastructure.
    """
    scene = scene_of(query, known.graph, infrastructure)
    spots = placements(scene.graph, scene.infrastructure, restrictions=scene.query.restrictions)
    recalled = _Recalled(known)
    bench = Bench(
        scene=scene,
        placements=spots,
        evaluator=recalled,
        rule=rule,
        looks=LatencyLooks(),
        must_stop=lambda _: False,
    )
    space = ConfigurationSpace(scene.graph)
    allowed = [p for p in known.profiles if holds(space, p.configuration)]
    found = [measure_each(bench, [_all_of(p, space.number(p.configuration))])[0] for p in allowed]
    measured = tuple(one for one in found if isinstance(one, Measured))
    spread = LatencyTail()
    for one in measured:
        spread.add(lineage_cells(scene.graph, one.configuration), one.work)
    accurate = _accurate(bench, space, strategy, measured, known)
    plans = _plans(bench, measured, accurate, spread, caution)
    evidence = f"{len(measured)} configurations measured earlier, none anew"
    return Answer(
        scene=scene,
        placements=spots,
        plans=plans,
        measured=measured,
        accurate=frozenset(accurate),
        failed=tuple(one for one in found if isinstance(one, Failed)),
        shortfall=None
        if plans
        else shortfall(
            scene,
            spots,
            measured,
            population=known.population,
            spread=spread,
            caution=caution,
            evidence=evidence,
        ),
    )


def _all_of(profile: Profile, number: int) -> Wanted:
    return Wanted(number=number, configuration=profile.configuration, inputs=len(profile.inputs))


def _accurate(
    bench: Bench,
    space: ConfigurationSpace,
    strategy: StrategyFactory,
    measured: Sequence[Measured],
    known: Known,
) -> dict[Configuration, Estimate]:
    """Give what a strategy that has observed all takes to be accurate enough, or is trusted."""
    setting = Setting(
        space=space,
        scene=bench.scene,
        placements=bench.placements,
        population=known.population,
        numbers=tuple(one.number for one in measured),
    )
    judge = strategy(setting, np.random.Generator(np.random.PCG64(bench.scene.query.seed)))
    seen = {one.number: one.observation() for one in measured}
    for number, observation in seen.items():
        judge.observe(number, observation)
    judged = [(one, judge.judged(one.number, seen[one.number])) for one in measured]
    bound = bench.scene.slo.accuracy
    return {
        one.configuration: judgement.accuracy or one.accuracy
        for one, judgement in judged
        if judgement.enough or bound <= known.trusted.get(one.configuration, -1.0)
    }


def _plans(
    bench: Bench,
    measured: Sequence[Measured],
    accurate: Mapping[Configuration, Estimate],
    spread: LatencyTail,
    caution: float | None,
) -> tuple[Plan, ...]:
    found: list[Plan] = []
    for one in measured:
        if one.configuration in accurate and one.latency_s <= bench.scene.slo.latency_s:
            found += announced(
                bench.scene,
                bench.placements,
                one,
                spread,
                accuracy=accurate[one.configuration],
                population=bench.population,
                most=_MOST_PLANS,
                confidence=caution,
            )
    return merged(bench.scene, found, _MOST_PLANS)


def result_of(found: Answer) -> PlanningResult:
    """Give plans that follow from measurements as the result of planning that paid nothing."""
    count = len(found.measured) + len(found.failed)
    return PlanningResult(
        outcome=Outcome.FEASIBLE if found.plans else Outcome.INFEASIBLE,
        plans=found.plans,
        measured=count,
        failed=len(found.failed),
        inputs=sum(one.inputs for one in found.measured) + sum(one.inputs for one in found.failed),
        spent_s=0.0,
        saved_s=0.0,
        stopped_because=f"{count} configurations measured earlier were enough",
        shortfall=found.shortfall,
        configurations=tuple(
            ConfigurationRecord.of(m.configuration, m.scores, m.work) for m in found.measured
        ),
    )


class _Recalled:
    """An `Evaluator` that gives all that is known of a configuration, and measures nothing."""

    def __init__(self, known: Known) -> None:
        self._known = known
        self._profiles = {profile.configuration: profile for profile in known.profiles}

    @property
    def graph(self) -> PipelineGraph:
        return self._known.graph

    @property
    def population(self) -> int:
        return self._known.population

    @property
    def spent_s(self) -> float:
        return 0.0

    @property
    def width(self) -> int:
        return 1

    def measure(self, configuration: Configuration, inputs: int) -> Profile:
        return self._profiles[configuration]

    def measure_each(self, asked: Sequence[tuple[Configuration, int]]) -> tuple[Profile, ...]:
        return tuple(self.measure(configuration, inputs) for configuration, inputs in asked)
