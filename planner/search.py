"""The search for the plans of one query: ask, measure, tell, tighten, stop.

Circinus 4.2, algorithm 1; its warm start is a matter of strategies. Configurations are searched,
placements and allocations are computed from each measured profile. The paper's models
know a plan with its placement; here a placement costs no measurement, so searching it
would only spread observations thinner: the latency model predicts the least latency
over all placements at full shares, and the probability is that of meeting the SLO there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from math import inf
from typing import NamedTuple
from weakref import WeakMethod

import numpy as np

from pipelines import checks
from pipelines.clock import Clock, SystemClock
from pipelines.configuration import ConfigurationSpace
from pipelines.errors import InvalidInput
from pipelines.evaluation import Evaluator, StoppingRule
from pipelines.infrastructure import Infrastructure
from pipelines.query import Query
from planner.bill import Forecast, Tally
from planner.caution import CAUTION
from planner.findings import Findings
from planner.forecasting import Probes, from_probes, probed
from planner.history import ConfigurationRecord, QueryRecord, within
from planner.limits import Budget
from planner.measuring import Bench, Ending, Failed, LatencyLooks, Measured
from planner.multi_fidelity import MultiFidelityFactory
from planner.placement import MOST_PLACEMENTS, placements
from planner.prediction import Scene, scene_of
from planner.result import Observer, Outcome, Phase, PlanningResult, Progress, Unobserved
from planner.rounds import measured, proposed
from planner.shortfall import shortfall
from planner.strategy import Proposal, Setting, StrategyFactory

_PROBE_STREAM = 1
_REPORT_EVERY = 10  # inputs: reports within a configuration, for pipelines that take seconds each


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSettings:
    """Settings of the search.

    Attributes:
        strategy: Makes the strategy. The product's own.
        patience: New configurations without a cheaper feasible plan after which the search ends,
            once there is one, `>= 1`. 100: strategies that know what they may still save stop
            earlier by themselves.
        minimum: Configurations to measure before the models may call the query hopeless, `>= 1`.
            30: with fewer they have not seen most knob values.
        hopeless: That is, when they give less than this chance that any other configuration meets
            the SLOs, in [0, 1). 0.1 %.
        most_plans: Size of the Pareto set, `>= 1`. 24: what the scheduler can weigh per query.
        most_placements: Beyond so many only those that never send data back down.
        looks: When hopeless latency ends a measurement.
        caution: Confidence of the latency interval whose upper end must meet the SLO after
            tightening, in (0, 1); None: the estimate itself must. 99 %: tightened to the estimate
            every other plan would be late.
        forecast: What the search is expected to cost, or the probes to tell it from; None:
            nothing is.
    """

    strategy: StrategyFactory = field(default_factory=MultiFidelityFactory)
    patience: int = 100
    minimum: int = 30
    hopeless: float = 1e-3
    most_plans: int = 24
    most_placements: int = MOST_PLACEMENTS
    looks: LatencyLooks = field(default_factory=LatencyLooks)
    caution: float | None = CAUTION
    forecast: Forecast | Probes | None = None

    def __post_init__(self) -> None:
        for name in ("patience", "minimum", "most_plans", "most_placements"):
            value = getattr(self, name)
            checks.require(value >= 1, f"search.{name}", "must be >= 1", value)
        within = 0 <= self.hopeless < 1
        checks.require(within, "search.hopeless", "must be in [0, 1)", self.hopeless)
        sane = self.caution is None or 0 < self.caution < 1
        checks.require(sane, "search.caution", "must be in (0, 1)", self.caution)


def search(  # noqa: PLR0913 - four things to plan, three ways to go about it; each has a default
    query: Query,
    infrastructure: Infrastructure,
    evaluator: Evaluator,
    rule: StoppingRule | None = None,
    *,
    settings: SearchSettings | None = None,
    observer: Observer | None = None,
    clock: Clock | None = None,
    history: Sequence[QueryRecord] = (),
) -> PlanningResult:
    """Give the plans of a query, or why there are none.

    Deterministic given the query's seed and what the evaluator measures, as long as no wall-clock
    limit is reached.

    Args:
        query: What to plan; its limits hold: operator seconds are exceeded by one input at most
            of each configuration that is measured at once.
        infrastructure: Where it may run.
        evaluator: Measures configurations of the query's pipeline.
        rule: Decides from scores whether a configuration is accurate enough; None: the strategy
            does, as the default one.
        settings: How to search.
        observer: Is told of progress and may cancel.
        clock: Measures the response time.
        history: What earlier queries on the same pipeline measured, the newest first.

    Raises:
        InvalidInput: If the evaluator's pipeline is not the query's, no tier has a machine,
            there are too many placements, or the restrictions do not fit pipeline and tiers or
            leave nothing.
    """
    named = evaluator.graph.name
    if named != query.pipeline:
        raise InvalidInput.of(
            "query.pipeline", f"must be the evaluator's, {named}", query.pipeline
        )
    return _Search(
        scene=scene_of(query, evaluator.graph, infrastructure),
        evaluator=evaluator,
        rule=rule,
        settings=settings or SearchSettings(),
        watch=_Watch(observer or Unobserved(), clock or SystemClock()),
        history=tuple(history),
    ).run()


class _Kind(Enum):
    """Why a search stops."""

    SETTLED = "nothing unmeasured could change the answer"
    LIMIT = "a limit, or patience, ended it"
    CANCELLED = "the observer ended it"


class _Stop(NamedTuple):
    kind: _Kind
    because: str


class _Search:
    """The state of one search."""

    def __init__(
        self,
        scene: Scene,
        evaluator: Evaluator,
        rule: StoppingRule | None,
        settings: SearchSettings,
        watch: _Watch,
        history: tuple[QueryRecord, ...],
    ) -> None:
        self._scene = scene
        self._settings = settings
        self._watch = watch
        self._evaluator = evaluator
        self._budget = Budget.of(scene.query.limits, scene.infrastructure)
        self._space = ConfigurationSpace(scene.graph)
        # The seed is part of the query, so that every process plans it alike.
        rng = np.random.Generator(np.random.PCG64(scene.query.seed))
        self._bench = Bench(
            scene=scene,
            placements=placements(
                scene.graph,
                scene.infrastructure,
                most=settings.most_placements,
                restrictions=scene.query.restrictions,
            ),
            evaluator=evaluator,
            rule=rule,
            looks=settings.looks,
            must_stop=_weakly(self._must_stop),
        )
        setting = Setting(
            space=self._space,
            scene=scene,
            placements=self._bench.placements,
            population=evaluator.population,
            history=within(history, self._space),
        )
        self._strategy = settings.strategy(setting, rng)
        self._findings = Findings(
            scene=scene,
            placements=self._bench.placements,
            population=evaluator.population,
            most_plans=settings.most_plans,
            caution=settings.caution,
        )
        self._tally = Tally(scene.graph, evaluator.population, self._budget.price_usd_per_hour)
        asked = settings.forecast
        self._forecast = asked if isinstance(asked, Forecast) else None
        self._met = self._told = 0  # inputs met before by what is measured, and told of

    def run(self) -> PlanningResult:
        """Give the result of the whole search."""
        self._probe()
        stop = self._limit()
        while stop is None:
            proposals = self._proposed()
            stop = self._settled(proposals[0] if proposals else None)
            if proposals and stop is None:
                self._take(proposals)
                self._report(Phase.IMPROVING if self._findings.plans else Phase.SEARCHING)
                stop = self._limit()
        self._report(Phase.FINISHED)
        return self._result(stop)

    def _probe(self) -> None:
        """Say what the search is expected to cost, within the limits."""
        probes = self._settings.forecast
        if isinstance(probes, Probes):
            # A stream of its own: probes change nothing about the search but what is known.
            rng = np.random.Generator(np.random.PCG64([self._scene.query.seed, _PROBE_STREAM]))
            profiles = probed(probes, self._space, self._evaluator, rng, self._is_over)
            for profile in profiles:
                self._tally.pay(profile)
            self._forecast = from_probes(
                profiles, self._space, self._evaluator, self._budget, probes.span
            )
        if probes is not None:
            self._report(Phase.PROBING)

    def _proposed(self) -> list[Proposal]:
        most = self._scene.query.limits.configurations or inf
        width, new = self._evaluator.width, most - self._findings.count
        return proposed(self._strategy, self._inputs_of, width=width, new=new)

    def _inputs_of(self, number: int) -> int:
        known = self._findings.measured.get(number)
        return 0 if known is None else known.inputs

    def _take(self, proposals: Sequence[Proposal]) -> None:
        findings, known = self._findings, [self._inputs_of(p.number) for p in proposals]
        self._met = self._told = sum(known)
        findings.newest = ()  # reports while it is measured tell of no plan twice
        every = measured(self._bench, self._space, proposals, self._inputs_of)
        for met, one in zip(known, every, strict=True):
            self._learn(one, is_new=met == 0)

    def _learn(self, one: Measured | Failed, *, is_new: bool) -> None:
        self._tally.pay(one.profile)
        if isinstance(one, Failed):
            self._findings.fail(one, one.number)
            self._strategy.observe(one.number, None)
            return
        if one.ending is not Ending.CUT_OFF:
            self._tally.end_early(one.configuration, one.work.operator_s)
        seen = self._findings.observed(one)
        self._strategy.observe(one.number, seen)
        judgement = self._strategy.judged(one.number, seen)
        self._findings.judge(one, judgement, is_new=is_new)

    def _limit(self) -> _Stop | None:
        if self._watch.cancelled():
            return _Stop(_Kind.CANCELLED, "cancelled")
        reached = self._reached(within=True)
        if reached is not None:
            return _Stop(_Kind.LIMIT, reached)
        findings = self._findings
        if findings.plans and findings.fruitless >= self._settings.patience:
            because = f"no cheaper plan in {findings.fruitless} more configurations"
            return _Stop(_Kind.LIMIT, because)
        if not findings.measured and len(findings.failed) >= self._settings.minimum:
            because = f"the first {len(findings.failed)} configurations all failed"
            return _Stop(_Kind.LIMIT, f"{because}, {findings.failed[0].failure}")
        return None

    def _settled(self, proposal: Proposal | None) -> _Stop | None:
        count, size = self._findings.count, self._space.size
        if proposal is None and count < size:
            nothing = f"nothing more worth measuring after {count} of {size} configurations"
            return _Stop(_Kind.LIMIT, self._reached() or nothing)
        if proposal is None:
            failures = len(self._findings.failed)
            failed = f", {failures} of them failed" if failures else ""
            return _Stop(_Kind.SETTLED, f"all {count} configurations measured{failed}")
        is_new = proposal.number not in self._findings.measured
        # More inputs of a configuration that was met do not count against this limit.
        if is_new and (reached := self._reached()) is not None:
            return _Stop(_Kind.LIMIT, reached)
        chance = proposal.chance
        enough = count >= self._settings.minimum
        if enough and chance is not None and chance < self._settings.hopeless:
            return _Stop(
                _Kind.SETTLED,
                f"{count} configurations measured, and the models give less than a "
                f"{self._settings.hopeless:.2g} chance that any other one meets the SLOs",
            )
        return None

    def _is_over(self) -> bool:
        return self._watch.cancelled() or self._reached(within=True) is not None

    def _must_stop(self, inputs: int) -> bool:
        if inputs // _REPORT_EVERY > self._told // _REPORT_EVERY:
            new, self._told = inputs - self._met, inputs
            self._report(Phase.IMPROVING if self._findings.plans else Phase.SEARCHING, new)
        return self._is_over()

    def _reached(self, *, within: bool = False) -> str | None:
        return self._budget.reached(
            spent_s=self._evaluator.spent_s,
            elapsed_s=self._watch.elapsed_s,
            configurations=0 if within else self._findings.count,
        )

    def _report(self, phase: Phase, extra_inputs: int = 0) -> None:
        spent, elapsed = self._evaluator.spent_s, self._watch.elapsed_s
        findings = self._findings
        self._watch.observer.progress(
            Progress(
                phase=phase,
                measured=findings.count,
                failed=len(findings.failed),
                inputs=findings.inputs + extra_inputs,
                spent_s=spent,
                profiling_left_s=max(self._budget.profiling_s - spent, 0.0),
                elapsed_s=elapsed,
                time_left_s=self._budget.time_left_s(elapsed),
                best=findings.plans[0] if findings.plans else None,
                plans=len(findings.plans),
                found=findings.newest,
                bill=self._tally.bill(spent, self._forecast),
            )
        )

    def _result(self, stop: _Stop) -> PlanningResult:
        outcome = self._outcome(stop.kind)
        why = None
        if outcome in (Outcome.INFEASIBLE, Outcome.EXHAUSTED):
            why = shortfall(
                self._scene,
                self._bench.placements,
                tuple(self._findings.measured.values()),
                population=self._evaluator.population,
                spread=self._findings.spread,
                caution=self._settings.caution,
                evidence=stop.because,
            )
        bill = self._tally.bill(self._evaluator.spent_s, self._forecast)
        return PlanningResult(
            outcome=outcome,
            plans=self._findings.plans,
            measured=self._findings.count,
            failed=len(self._findings.failed),
            inputs=self._findings.inputs,
            spent_s=self._evaluator.spent_s,
            saved_s=bill.cache.seconds,
            stopped_because=stop.because,
            shortfall=why,
            bill=bill,
            configurations=tuple(
                ConfigurationRecord.of(m.configuration, m.scores, m.work)
                for m in self._findings.measured.values()
            ),
        )

    def _outcome(self, kind: _Kind) -> Outcome:
        if kind is _Kind.CANCELLED:
            return Outcome.CANCELLED
        if self._findings.plans:
            return Outcome.FEASIBLE
        return Outcome.INFEASIBLE if kind is _Kind.SETTLED else Outcome.EXHAUSTED


def _weakly(asked: Callable[[int], bool]) -> Callable[[int], bool]:
    """Give a call that does not keep its object: a search's models are large, and go with it."""
    method = WeakMethod(asked)

    def ask(inputs: int) -> bool:
        bound = method()
        return bound is None or bound(inputs)

    return ask


class _Watch:
    """The observer with the time since the start; a cancellation is final."""

    def __init__(self, observer: Observer, clock: Clock) -> None:
        self.observer = observer
        self._clock = clock
        self._start = clock.now()
        self._cancelled = False

    @property
    def elapsed_s(self) -> float:
        return self._clock.now() - self._start

    def cancelled(self) -> bool:
        self._cancelled = self._cancelled or self.observer.cancelled()
        return self._cancelled
