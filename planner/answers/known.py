"""What earlier measurements say of a query, nothing measured anew.

Profiles are of the reference machine: placements, allocations and costs follow from them,
for any infrastructure and any SLO. So a question that begins with "what if" is answered at
once, and replanning (Circinus 4.3) starts from the answer: what was measured of the same data
holds whatever happens to links, prices and objectives. When the data changed, earlier figures are
history: a hint, no answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from circinus.pipelines.model.configuration import Configuration
from circinus.pipelines.model.graph import PipelineGraph
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.plan import Plan
from circinus.pipelines.model.profile import Profile, StoppingRule
from circinus.pipelines.model.query import Query
from circinus.pipelines.model.slo import Estimate
from circinus.planner.answers.recollection import Recalled, Recollection
from circinus.planner.models.history import ConfigurationRecord
from circinus.planner.plans.measuring import Bench, FailedMeasurement
from circinus.planner.plans.plans import MARGIN_CONFIDENCE, announced, merged
from circinus.planner.search.result import (
    PlanningOutcome,
    PlanningResult,
    Shortfall,
    undecided_words,
)
from circinus.planner.search.shortfall import shortfall
from circinus.planner.strategy.protocol import Measured, SearchSetting, Strategy, StrategyFactory

_MOST_PLANS = 24


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Known:
    """What was measured of a query's pipeline and data."""

    graph: PipelineGraph
    profiles: Sequence[Profile]  # one per configuration, over the first inputs of one order
    population: int  # number of inputs there are
    # Configurations taken to be accurate enough for an accuracy SLO, whatever the stopping rule
    # says, with that SLO: a strategy may know more than the rule.
    trusted: Mapping[Configuration, float]
    # What its answers have in common; rules of one kind are alike, they are of its one order
    recollection: Recollection = field(default_factory=Recollection, init=False)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Answer:
    """What is known of a query under some circumstances."""

    setting: SearchSetting  # the query, and where it would run
    plans: tuple[Plan, ...]  # the Pareto set, cheapest first
    measured: tuple[Measured, ...]  # configurations with figures that restrictions allow
    accurate: frozenset[Configuration]  # those of them that are accurate enough
    failed: tuple[FailedMeasurement, ...]
    shortfall: Shortfall | None  # why there is no plan; None when there is one
    # Configurations that may belong to the front, but were not measured enough to say; None: the
    # strategy cannot say.
    undecided: int | None = None


def answer(
    query: Query,
    infrastructure: Infrastructure,
    known: Known,
    strategy: StrategyFactory,
    rule: StoppingRule | None,  # what the strategy is told of scores; None: nothing
    margin_confidence: float | None = MARGIN_CONFIDENCE,  # see `upper_ratio`
) -> Answer:
    """Return the plans of a query as far as they were measured.

    The strategy judges which configurations are accurate enough, as in a search that had measured
    all of them. InvalidInput if the query does not fit pipeline and infrastructure.
    """
    setting, recalled, accurate, plans = _found(
        query, infrastructure, known, strategy, rule, margin_confidence
    )
    good, tail = recalled.measured, recalled.tail
    evidence = f"{len(good)} configurations measured earlier, none anew"
    lacking = None if plans else shortfall(setting, good, tail, margin_confidence, evidence)
    front = merged(setting.context, plans, _MOST_PLANS)
    return Answer(
        setting=setting,
        plans=front,
        measured=good,
        accurate=frozenset(accurate),
        failed=recalled.failed,
        shortfall=lacking,
        undecided=recalled.judge.undecided(front),
    )


def every_plan(
    query: Query,
    infrastructure: Infrastructure,
    known: Known,
    strategy: StrategyFactory,
    rule: StoppingRule | None,
    margin_confidence: float | None = MARGIN_CONFIDENCE,
) -> Sequence[Plan]:
    """Return the plans that `answer` chooses among: the cheapest of every configuration, at least.

    InvalidInput as there.
    """
    return _found(query, infrastructure, known, strategy, rule, margin_confidence).plans


class _Found(NamedTuple):
    setting: SearchSetting
    recalled: Recalled
    accurate: Mapping[Configuration, Estimate]
    plans: Sequence[Plan]


def _found(
    query: Query,
    infrastructure: Infrastructure,
    known: Known,
    strategy: StrategyFactory,
    rule: StoppingRule | None,
    margin_confidence: float | None,
) -> _Found:
    """Return the plans of all configurations that are accurate enough, and what they rest on."""
    setting = SearchSetting.of(query, known.graph, infrastructure, known.population)
    bench = Bench(setting=setting, rule=rule)
    recalled = known.recollection.of(bench, known.profiles, strategy)
    accurate = _accurate(setting, recalled.judge, recalled.measured, known)
    plans: list[Plan] = []
    for one in recalled.measured:
        if one.configuration in accurate and one.latency_s <= setting.slo.latency_s:
            told, tail = accurate[one.configuration], recalled.tail
            make = partial(announced, setting, one, tail, told, _MOST_PLANS, margin_confidence)
            plans += recalled.plans((one.number, told, margin_confidence), make)
    return _Found(setting, recalled, accurate, plans)


def _accurate(
    setting: SearchSetting, judge: Strategy, measured: Sequence[Measured], known: Known
) -> dict[Configuration, Estimate]:
    """Return what a strategy that has observed all takes to be accurate enough, or is trusted."""
    judged = [(one, judge.judged(one.number, one)) for one in measured]
    return {
        one.configuration: judgement.accuracy or one.accuracy
        for one, judgement in judged
        if judgement.enough or setting.asked.accuracy <= known.trusted.get(one.configuration, -1.0)
    }


def result_of(found: Answer) -> PlanningResult:
    """Return plans that follow from measurements as the result of planning that paid nothing."""
    every: tuple[Measured | FailedMeasurement, ...] = (*found.measured, *found.failed)
    return PlanningResult(
        outcome=PlanningOutcome.FEASIBLE if found.plans else PlanningOutcome.INFEASIBLE,
        plans=found.plans,
        measured=len(every),
        failed=len(found.failed),
        inputs=sum(one.inputs for one in every),
        spent_s=0.0,
        saved_s=0.0,
        stopped_because=f"{len(every)} configurations measured earlier were enough",
        shortfall=found.shortfall,
        remarks=undecided_words(found.undecided if found.plans else None),
        configurations=tuple(
            ConfigurationRecord.of(m.configuration, m.expected, m.work) for m in found.measured
        ),
    )
