"""What was measured, prepared for one question after another.

A what-if changes objectives, or machines, seldom both: what does not depend on the change is kept
from the question before. Every figure is the one that it would be made anew.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np

from circinus.pipelines.model.latency import Work
from circinus.pipelines.model.plan import Plan
from circinus.pipelines.model.profile import FloatArray, Profile
from circinus.pipelines.model.query import OnFailure, PlanningContext
from circinus.pipelines.model.restrictions import Restrictions
from circinus.pipelines.model.slo import HoldsFor
from circinus.planner.models.history import holds
from circinus.planner.models.latency_tail import LatencyTail, lineage_cells
from circinus.planner.plans import failing
from circinus.planner.plans.measuring import (
    Bench,
    FailedMeasurement,
    failure_of,
    judged,
    measured_as,
)
from circinus.planner.strategy.protocol import (
    Ending,
    Measured,
    SearchSetting,
    Strategy,
    StrategyFactory,
)

_KEPT = 16  # questions of which a part is kept
_Value = TypeVar("_Value")


@dataclass(slots=True, eq=False)
class _Counted:
    """Profiles as they count under what a query says of failures and knobs."""

    of: tuple[OnFailure, Restrictions, StrategyFactory, type]  # what it is by
    measured: tuple[Measured, ...]  # as in the setting that was asked first
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

        Whenever it is asked, profiles and population are the same, and rules of one type alike.
        """
        setting = bench.setting
        query = setting.context.query
        by = query.on_failure, query.restrictions, strategy, type(bench.rule)
        counted = self._counted
        if counted is None or counted.of != by:
            self._counted = counted = _counted(bench, profiles, strategy)
        endings = _kept(
            counted.endings,
            setting.slo.accuracy,
            lambda: _endings(bench, [one.profile for one in counted.measured]),
        )
        latencies = _kept(
            counted.latencies,
            _circumstances(setting.context),
            lambda: setting.least_latencies(
                [one.configuration for one in counted.measured],
                [one.work for one in counted.measured],
            ),
        )
        found = tuple(
            one
            if one.ending is ending and one.latency_s == latency_s
            else replace(one, ending=ending, latency_s=latency_s)
            for one, ending, latency_s in zip(
                counted.measured, endings, latencies.tolist(), strict=True
            )
        )
        return Recalled(
            measured=found,
            failed=counted.failed,
            tail=counted.tail,
            judge=counted.judge.under(setting),
            _plans=_kept(counted.plans, _plans_by(setting), dict),
        )


def _counted(bench: Bench, profiles: Sequence[Profile], strategy: StrategyFactory) -> _Counted:
    setting = bench.setting
    space, query = setting.space, setting.context.query
    counting = failing.Counting(query.on_failure, space.size)
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
    asked = replace(setting, numbers=tuple(good))
    judge = strategy(asked, np.random.Generator(np.random.PCG64(query.seed)))
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
    # Where copies are needed, the bound says what machines that do not hold them count as.
    bound = slo.latency_s if rate is not None or slo.throughput_per_s is not None else None
    return repr(context.infrastructure), slo.latency_statistic, rate, slo.throughput_per_s, bound


def _plans_by(setting: SearchSetting) -> Hashable:
    """Return what decides which plans a configuration that is accurate enough has."""
    slo = setting.asked
    if slo.holds_for is HoldsFor.EXAMPLES:
        slo = replace(slo, accuracy=0.0)  # who is accurate enough was decided before
    return _circumstances(setting.context), slo


def _kept(
    known: OrderedDict[Hashable, _Value], key: Hashable, make: Callable[[], _Value]
) -> _Value:
    found = known.get(key)
    if found is None:
        found = known[key] = make()
        while len(known) > _KEPT:
            known.popitem(last=False)
    return found
