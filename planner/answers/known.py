"""Answers to a query from earlier measurements, nothing measured anew.

Profiles are of the reference machine: placements, allocations and costs follow from them, for any
infrastructure and any SLO. So a what-if is answered at once, and replanning (Circinus 4.3) starts
from the answer. When the data changed, earlier figures are history: a hint, no answer. A what-if
changes objectives or machines, seldom both: a `Recollection` keeps what does not depend on that.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np

from circinus.pipelines.model.configuration import Configuration
from circinus.pipelines.model.graph import PipelineGraph
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.latency import Work
from circinus.pipelines.model.plan import Plan
from circinus.pipelines.model.profile import FloatArray, Profile, StoppingRule
from circinus.pipelines.model.query import OnFailure, PlanningContext, Query
from circinus.pipelines.model.restrictions import Restrictions
from circinus.pipelines.model.slo import Estimate
from circinus.planner.models.history import ConfigurationRecord, holds
from circinus.planner.models.latency_tail import LatencyTail, lineage_cells
from circinus.planner.search.failing import Counting
from circinus.planner.search.intervals import MARGIN_CONFIDENCE
from circinus.planner.search.measuring import (
    Bench,
    FailedMeasurement,
    failure_of,
    judged,
    measured_as,
)
from circinus.planner.search.plans import announced, merged
from circinus.planner.search.result import (
    PlanningOutcome,
    PlanningResult,
    Shortfall,
    undecided_words,
)
from circinus.planner.search.shortfall import shortfall
from circinus.planner.strategy.protocol import (
    Ending,
    Measured,
    SearchSetting,
    Strategy,
    StrategyFactory,
)

_CACHED = 16  # questions of which a part is cached
_Value = TypeVar("_Value")


_MOST_PLANS = 24


@dataclass(slots=True, eq=False)
class _Counted:
    """Profiles as they count under a query's rules on failures and knobs."""

    of: tuple[OnFailure, Restrictions, StrategyFactory, type]  # what it is by
    measured: tuple[Measured, ...]  # as in the first setting
    failed: tuple[FailedMeasurement, ...]
    tail: LatencyTail
    judge: Strategy  # has observed all of them
    endings: OrderedDict[Hashable, Sequence[Ending]] = field(default_factory=OrderedDict)
    latencies: OrderedDict[Hashable, FloatArray] = field(default_factory=OrderedDict)
    plans: OrderedDict[Hashable, dict[Hashable, tuple[Plan, ...]]] = field(
        default_factory=OrderedDict
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Recalled:
    """What was measured, as one setting sees it."""

    measured: tuple[Measured, ...]  # configurations with figures that restrictions allow
    failed: tuple[FailedMeasurement, ...]
    tail: LatencyTail  # over all that was measured
    judge: Strategy  # has observed all of it
    _plans: dict[Hashable, tuple[Plan, ...]]  # that were made in a setting like this one

    def plans(self, by: Hashable, make: Callable[[], tuple[Plan, ...]]) -> tuple[Plan, ...]:
        """Return plans by a configuration and its measurements; new ones are made."""
        if by not in self._plans:
            self._plans[by] = make()
        return self._plans[by]


@dataclass(slots=True, eq=False)
class Recollection:
    """Safe to share between threads: what two make at once is the same."""

    _counted: _Counted | None = None

    def of(self, bench: Bench, profiles: Sequence[Profile], strategy: StrategyFactory) -> Recalled:
        """Return what was measured of all profiles.

        Profiles and population are the same in every call, and rules of one type are alike.
        """
        setting = bench.setting
        query = setting.context.query
        by = query.on_failure, query.restrictions, strategy, type(bench.rule)
        counted = self._counted
        if counted is None or counted.of != by:
            self._counted = counted = _counted(bench, profiles, strategy)
        endings = _cached(
            counted.endings,
            setting.slo.accuracy,
            lambda: _endings(bench, [one.profile for one in counted.measured]),
        )
        latencies = _cached(
            counted.latencies,
            _circumstances(setting.context),
            lambda: setting.least_latencies(
                [one.configuration for one in counted.measured],
                [one.work for one in counted.measured],
            ),
        )
        measured = tuple(
            one
            if one.ending is ending and one.latency_s == latency_s
            else replace(one, ending=ending, latency_s=latency_s)
            for one, ending, latency_s in zip(
                counted.measured, endings, latencies.tolist(), strict=True
            )
        )
        return Recalled(
            measured=measured,
            failed=counted.failed,
            tail=counted.tail,
            judge=counted.judge.under(setting),
            _plans=_cached(counted.plans, _plans_by(setting), dict),
        )


def _counted(bench: Bench, profiles: Sequence[Profile], strategy: StrategyFactory) -> _Counted:
    setting = bench.setting
    space, query = setting.space, setting.context.query
    counting = Counting(query.on_failure, space.size)
    counting.learn(profiles)
    counts = [] if counting.end else [counting.counted(one.configuration) for one in profiles]
    failed, good = list[FailedMeasurement](), dict[int, Profile]()
    for profile in counts:
        if holds(space, profile.configuration):
            number = space.number(profile.configuration)
            if (failure := failure_of(number, profile)) is not None:
                failed.append(failure)
            else:
                good[number] = profile
    works = [Work.of(profile) for profile in good.values()]
    configurations = [profile.configuration for profile in good.values()]
    latencies = setting.least_latencies(configurations, works).tolist()
    measured = tuple(
        measured_as(bench, number, profile, ending, latency_s)
        for (number, profile), ending, latency_s in zip(
            good.items(), _endings(bench, [*good.values()]), latencies, strict=True
        )
    )
    tail = LatencyTail()
    for one in measured:
        tail.add(lineage_cells(setting.context.graph, one.configuration), one.work)
    wider = replace(setting, numbers=tuple(good))
    judge = strategy(wider, np.random.Generator(np.random.PCG64(query.seed)))
    for one in measured:
        judge.observe(one.number, one)
    return _Counted(
        of=(query.on_failure, query.restrictions, strategy, type(bench.rule)),
        measured=measured,
        failed=tuple(failed),
        tail=tail,
        judge=judge,
    )


def _endings(bench: Bench, profiles: Sequence[Profile]) -> Sequence[Ending]:
    """Return what is decided of each; equal scores, which short ones often have, only once."""
    known: dict[bytes, Ending] = {}
    for profile in profiles:
        scores = profile.score.tobytes()
        if scores not in known:
            known[scores] = judged(bench, profile) or Ending.PARTIAL
    return [known[profile.score.tobytes()] for profile in profiles]


def _circumstances(context: PlanningContext) -> Hashable:
    """Return what decides how long configurations take at least."""
    slo, rate = context.slo, context.query.request_rate_per_s
    # Where copies are needed, the bound is what machines that do not hold them count as.
    bound = slo.latency_s if rate is not None or slo.throughput_per_s is not None else None
    return repr(context.infrastructure), slo.latency_statistic, rate, slo.throughput_per_s, bound


def _plans_by(setting: SearchSetting) -> Hashable:
    """Return what decides which plans a configuration that is accurate enough has."""
    slo = setting.context.slo
    if not setting.is_ahead:
        slo = replace(slo, accuracy=0.0)  # who is accurate enough was decided before
    return _circumstances(setting.context), slo


def _cached(
    known: OrderedDict[Hashable, _Value], key: Hashable, make: Callable[[], _Value]
) -> _Value:
    value = known.get(key)
    if value is None:
        value = known[key] = make()
        while len(known) > _CACHED:
            known.popitem(last=False)
    return value


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Known:
    """What was measured of a query's pipeline and data."""

    graph: PipelineGraph
    profiles: Sequence[Profile]  # one per configuration, over the first inputs of one order
    population: int  # number of inputs there are
    # Configurations taken to be accurate enough for an accuracy SLO, against the stopping rule
    # if need be, with that SLO: a strategy may know more than the rule.
    trusted: Mapping[Configuration, float]
    # What its answers have in common; rules of one kind are alike, they are of its one order
    recollection: Recollection = field(default_factory=Recollection, init=False)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Answer:
    """The answer to a query under some circumstances."""

    setting: SearchSetting  # the query, and where it would run
    plans: tuple[Plan, ...]  # the Pareto set, cheapest first
    measured: tuple[Measured, ...]  # configurations with figures that restrictions allow
    accurate: frozenset[Configuration]  # those of them that are accurate enough
    failed: tuple[FailedMeasurement, ...]
    shortfall: Shortfall | None  # why there is no plan; None when there is one
    # Configurations that may belong to the front, but were not measured enough to decide; None:
    # the strategy cannot count them.
    undecided: int | None = None


# deviates: replan-from-measurements
def answer(
    query: Query,
    infrastructure: Infrastructure,
    known: Known,
    strategy: StrategyFactory,
    rule: StoppingRule | None,  # the strategy's rule for scores; None: it has none
    margin_confidence: float | None = MARGIN_CONFIDENCE,  # see `upper_ratio`
) -> Answer:
    """Return the plans of a query as far as they were measured.

    The strategy judges which configurations are accurate enough, as in a search that had measured
    all of them. InvalidInput if the query does not fit pipeline and infrastructure.
    """
    setting, recalled, accurate, plans = evaluated(
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


class Evaluation(NamedTuple):
    """The evaluation of a query before plans are compared."""

    setting: SearchSetting
    recalled: Recalled
    accurate: Mapping[Configuration, Estimate]  # configurations that are accurate enough
    plans: Sequence[Plan]  # of all of these, the cheapest of each at least


def evaluated(
    query: Query,
    infrastructure: Infrastructure,
    known: Known,
    strategy: StrategyFactory,
    rule: StoppingRule | None,
    margin_confidence: float | None = MARGIN_CONFIDENCE,
) -> Evaluation:
    """Return the plans that `answer` chooses among, and what they rest on; errors as there."""
    setting = SearchSetting.of(query, known.graph, infrastructure, known.population)
    bench = Bench(setting=setting, rule=rule)
    recalled = known.recollection.of(bench, known.profiles, strategy)
    accurate = _accurate(setting, recalled.judge, recalled.measured, known)
    plans: list[Plan] = []
    for one in recalled.measured:
        if one.configuration in accurate and one.latency_s <= setting.slo.latency_s:
            accuracy, tail = accurate[one.configuration], recalled.tail
            make = partial(announced, setting, one, tail, accuracy, _MOST_PLANS, margin_confidence)
            plans += recalled.plans((one.number, accuracy, margin_confidence), make)
    return Evaluation(setting, recalled, accurate, plans)


def _accurate(
    setting: SearchSetting, judge: Strategy, measured: Sequence[Measured], known: Known
) -> dict[Configuration, Estimate]:
    """Return what a strategy that has observed all takes to be accurate enough, or is trusted."""
    judged = [(one, judge.judged(one.number, one)) for one in measured]
    return {
        one.configuration: judgement.accuracy or one.accuracy
        for one, judgement in judged
        if judgement.enough
        or setting.context.slo.accuracy <= known.trusted.get(one.configuration, -1.0)
    }


def result_of(answered: Answer) -> PlanningResult:
    """Return plans that follow from measurements as the result of planning that paid nothing."""
    every: tuple[Measured | FailedMeasurement, ...] = (*answered.measured, *answered.failed)
    return PlanningResult(
        outcome=PlanningOutcome.FEASIBLE if answered.plans else PlanningOutcome.INFEASIBLE,
        plans=answered.plans,
        measured=len(every),
        failed=len(answered.failed),
        inputs=sum(one.inputs for one in every),
        spent_s=0.0,
        stopped_because=f"{len(every)} configurations measured earlier were enough",
        shortfall=answered.shortfall,
        remarks=undecided_words(answered.undecided if answered.plans else None),
        configurations=tuple(
            ConfigurationRecord.of(m.configuration, m.expected, m.work) for m in answered.measured
        ),
    )
