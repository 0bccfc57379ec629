"""The search for the plans of one query: propose, measure, observe, tighten, stop.

Circinus 4.2, algorithm 1; its warm start is a matter of strategies. The paper's models know a plan
with its placement. Here placements and allocations are computed from each measured profile, which
costs no measurement: the latency model predicts the least latency over all placements at full
shares, and the probability is that of meeting the SLO there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from math import inf
from typing import NamedTuple

import numpy as np

from circinus.pipelines import checks
from circinus.pipelines.clock import Clock, SystemClock, Waits
from circinus.pipelines.errors import Stopped, Unaffordable
from circinus.pipelines.model.configuration import ConfigurationSpace
from circinus.pipelines.model.graph import PipelineGraph
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.profile import Evaluator, StoppingRule
from circinus.pipelines.model.query import OnFailure, Query
from circinus.planner.deployment.placement import MOST_PLACEMENTS
from circinus.planner.models.ahead import doubt
from circinus.planner.models.history import QueryRecord
from circinus.planner.search.auditing import Audit, Audited
from circinus.planner.search.bill import CallsCost, Forecast, Tally
from circinus.planner.search.budget import Account, Budget
from circinus.planner.search.failing import Tolerant
from circinus.planner.search.findings import Findings, state_of
from circinus.planner.search.forecasting import Probes, from_probes, probed, with_waits
from circinus.planner.search.intervals import MARGIN_CONFIDENCE
from circinus.planner.search.measuring import (
    Bench,
    FailedMeasurement,
    LatencyLooks,
    PartScores,
    counted_anew,
    measured,
)
from circinus.planner.search.plans import fastest_plan
from circinus.planner.search.reporting import Reporter
from circinus.planner.search.result import (
    Observer,
    PlanningOutcome,
    PlanningPhase,
    PlanningResult,
    TrialState,
)
from circinus.planner.search.rounds import Rounds
from circinus.planner.search.shortfall import shortfall
from circinus.planner.strategy.multi_fidelity import MultiFidelity
from circinus.planner.strategy.protocol import (
    Ending,
    Measured,
    Proposal,
    SearchSetting,
    Strategy,
    StrategyFactory,
)

_PROBE_STREAM = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSettings:
    """Settings of the search."""

    strategy: StrategyFactory = MultiFidelity
    # New configurations without a cheaper feasible plan after which the search ends, once there is
    # one, `>= 1`; None: never. 100: strategies that know what they may still save stop earlier.
    patience: int | None = 100
    # Configurations to measure before the models, or failures of all, may end a search without
    # plans, `>= 1`; None: they never do. 30: with fewer most knob values are not observed.
    minimum: int | None = 30
    # Chance that any other configuration meets the SLOs, below which they do, in [0, 1). 0.1 %.
    infeasible_below: float = 1e-3
    # deviates: most-plans: the paper keeps every Pareto-optimal variant
    most_plans: int = 24  # of the Pareto set, `>= 1`. 24: what the scheduler can weigh per query
    # deviates: most-placements: the paper names no bound
    most_placements: int = MOST_PLACEMENTS  # beyond, only those that never send data back down
    looks: LatencyLooks = field(default_factory=LatencyLooks)
    # Of the latency interval whose upper end must meet the SLO after tightening, in (0, 1); None:
    # the estimate itself must. 99 %: tightened to the estimate every other plan would be late.
    margin_confidence: float | None = MARGIN_CONFIDENCE
    forecast: Forecast | Probes | None = None  # of costs, or probes to make one
    audit: Audit | None = None  # decides accuracies where scores may be wrong
    # Scores inputs by all outputs of a configuration; None: each output has a score of its own.
    scores: PartScores | None = None
    # Gives what calls cost until now, by operator, whatever was lost included; None: nothing calls
    called: Callable[[], Sequence[CallsCost]] | None = None
    waits: Waits | None = None  # what is waited for while it measures, which is no work

    def __post_init__(self) -> None:
        for name in ("patience", "minimum", "most_plans", "most_placements"):
            if (value := getattr(self, name)) is not None:
                checks.at_least(f"search.{name}", value, 1)
        chance = self.infeasible_below
        checks.require(0 <= chance < 1, "search.infeasible_below", "must be in [0, 1)", chance)
        if self.margin_confidence is not None:
            checks.open_probability("search.margin_confidence", self.margin_confidence)


def search(  # noqa: PLR0913 - four things to plan, three ways to go about it; each has a default
    query: Query,
    infrastructure: Infrastructure,
    evaluator: Evaluator,  # of the query's pipeline
    rule: StoppingRule | None = None,  # decides what is accurate enough; None: the strategy does
    *,
    settings: SearchSettings | None = None,
    observer: Observer | None = None,  # receives progress and may cancel
    clock: Clock | None = None,  # measures the response time
    history: Sequence[QueryRecord] = (),  # of earlier queries on the pipeline, the newest first
) -> PlanningResult:
    """Return the plans of a query, or why there are none.

    Deterministic given the query's seed and what the evaluator measures, as long as no wall-clock
    limit is reached. Limits hold: operator seconds are exceeded by one input at most of each
    configuration that is measured at once. InvalidInput if the evaluator's pipeline is not the
    query's, no tier has a machine, there are too many placements, or the restrictions do not fit
    pipeline and tiers or leave nothing.
    """
    named, words = evaluator.graph.name, "must be the evaluator's"
    checks.require(query.pipeline == named, "query.pipeline", f"{words}, {named}", query.pipeline)
    settings = settings or SearchSettings()
    setting = SearchSetting.of(
        query,
        evaluator.graph,
        infrastructure,
        evaluator.population,
        most_placements=settings.most_placements,
        history=history,
    )
    bench = Bench(
        setting=setting,
        rule=rule if settings.scores is None else None,  # rules are for scores in [0, 1]
        looks=settings.looks,
        audit=settings.audit,
        scores=settings.scores,
    )
    return _Search(bench, evaluator, settings, observer, clock or SystemClock()).run()


class _Stop(NamedTuple):
    """Why a search stops, and how planning ended unless there are plans."""

    without_plans: PlanningOutcome  # infeasible: nothing unmeasured could change the answer
    because: str


class _Search:
    """The state of one search."""

    def __init__(
        self,
        bench: Bench,
        evaluator: Evaluator,
        settings: SearchSettings,
        observer: Observer | None,
        clock: Clock,
    ) -> None:
        self._bench, self._settings, setting = bench, settings, bench.setting
        context = setting.context
        self._query = context.query
        self._evaluator = Tolerant(evaluator, self._query.on_failure, setting.space.size)
        budget = Budget.of(self._query.limits, context.infrastructure)
        self._account = Account(budget, self._evaluator, clock, settings.waits)
        tally = Tally(context.graph, setting.population, budget.price_usd_per_hour)
        self._report = Reporter(observer, self._account, self._evaluator, tally, settings.called)
        self._rounds = Rounds(self._account)
        self._left_out = self._evaluator.left_out
        self._undeclared: list[str] = []  # operators that draw and were not declared to
        self._ended: Stopped | None = None  # when what was running was stopped
        self._begin()

    def _begin(self) -> None:
        setting, settings = self._bench.setting, self._settings

        def make() -> Strategy:
            # The seed is part of the query, so that every process plans it alike.
            rng = np.random.Generator(np.random.PCG64(self._query.seed))
            return settings.strategy(setting, rng)

        audit = settings.audit
        self._strategy = make() if audit is None else Audited(make, audit, setting)
        self._findings = Findings(setting, settings.most_plans, settings.margin_confidence)

    def run(self) -> PlanningResult:
        """Return the result of the whole search."""
        population, ahead = self._evaluator.population, self._bench.setting.is_ahead
        if ahead and (words := doubt(self._query.slo, population)) is not None:
            stop: _Stop | None = _Stop(PlanningOutcome.INFEASIBLE, words)
        else:
            self._probe()
            stop = self._limit()
        while stop is None:
            proposals = self._rounds.next(self._strategy, self._findings)
            stop = self._settled(proposals[0] if proposals else None)
            if proposals and stop is None:
                self._measure(proposals)
                self._report.progress(self._findings)
                stop = self._limit()
        if stop.without_plans is not PlanningOutcome.CANCELLED:
            findings = self._findings
            every = tuple(findings.measured.values())
            self._judge_again(findings.behind if findings.plans else every)
        self._report.progress(self._findings, PlanningPhase.FINISHED)
        return self._result(stop)

    def _probe(self) -> None:
        """Forecast what the search will cost, within the limits."""
        probes, space = self._settings.forecast, self._bench.setting.space
        forecast = probes if isinstance(probes, Forecast) else None
        if isinstance(probes, Probes):
            # A stream of its own: probes change nothing about the search but what is known.
            rng = np.random.Generator(np.random.PCG64([self._query.seed, _PROBE_STREAM]))
            try:
                profiles = probed(probes, space, self._evaluator, rng, self._is_over)
            except Stopped as stopped:
                self._ended, profiles = stopped, []
            for profile in profiles:
                self._report.tally.pay(profile)
            budget, called = self._account.budget, self._report.called()
            forecast = from_probes(profiles, space, self._evaluator, budget, probes.span, called)
        if forecast is not None:
            tiers = self._bench.setting.context.infrastructure
            limit_s, inputs = self._query.limits.response_s or inf, self._bench.setting.population
            self._report.forecast = with_waits(forecast, space, inputs, tiers, limit_s)
        if probes is not None:
            self._report.progress(self._findings, PlanningPhase.PROBING)

    def _measure(self, proposals: Sequence[Proposal]) -> None:
        findings, evaluator = self._findings, self._evaluator
        before = [findings.inputs_of(proposal.number) for proposal in proposals]
        self._report.begin(sum(before))
        findings.newest = ()  # reports while it is measured name no plan twice
        met = findings.inputs_of
        try:
            every = measured(self._bench, evaluator, proposals, met, self._must_stop)
        except Stopped as stopped:
            self._ended = stopped
            return
        for one in every:
            self._report.tally.pay(one.profile)
        if _drawing(evaluator.graph) != _drawing(self._bench.setting.context.graph):
            self._draw()
            every = self._counted_anew(every)
        elif evaluator.left_out != self._left_out:
            self._left_out = evaluator.left_out
            every = self._counted_anew(every)
        for inputs, one in zip(before, every, strict=True):
            self._learn(one, is_new=inputs == 0)

    def _draw(self) -> None:
        """Declare that operators draw which answered equal inputs differently."""
        setting, drawing = self._bench.setting, _drawing(self._evaluator.graph)
        graph = setting.context.graph  # without what the query rules out
        self._undeclared += sorted(drawing - _drawing(graph))
        operators = (replace(each, draws=each.name in drawing) for each in graph.operators)
        graph = replace(graph, operators=tuple(operators))
        context, space = replace(setting.context, graph=graph), ConfigurationSpace(graph)
        self._bench = replace(self._bench, setting=replace(setting, context=context, space=space))

    def _counted_anew(
        self, newest: Sequence[Measured | FailedMeasurement]
    ) -> tuple[Measured | FailedMeasurement, ...]:
        """Learn all that was measured again, as it counts now that inputs left or came back.

        Models add up what they observe: new ones observe the whole, in order.
        """
        before, counted = self._findings, self._evaluator.counted
        self._begin()

        def anew(one: Measured | FailedMeasurement) -> Measured | FailedMeasurement:
            return counted_anew(self._bench, one, counted(one.profile.configuration))

        for one in chain(before.failed, map(anew, before.measured.values())):
            self._learn(one, is_new=True)
        return tuple(map(anew, newest))

    def _learn(self, one: Measured | FailedMeasurement, *, is_new: bool) -> None:
        if isinstance(one, FailedMeasurement):
            self._findings.fail(one)
            self._strategy.observe(one.number, None)
            if one.failure.ends_planning:
                self._evaluator.learn([one.profile])
            self._report.trial(one.profile.configuration, one.inputs, TrialState.FAILED, None)
            return
        if one.ending is not Ending.CUT_OFF:
            self._report.tally.end_early(one.configuration, one.work.operator_s)
        observed = self._findings.observed(one)
        self._strategy.observe(one.number, observed)
        judgement = self._strategy.judged(one.number, observed)
        plans, setting = self._findings.judge(one, judgement, is_new=is_new), self._bench.setting
        if self._report.reports_trials:
            state = state_of(setting, one, judgement, has_plan=bool(plans))
            plan = plans[0] if plans else fastest_plan(setting, one)
            self._report.trial(one.configuration, one.inputs, state, plan)

    def _judge_again(self, every: Sequence[Measured]) -> None:
        """Look for plans once more: what was measured later informs what was earlier, too."""
        late = self._account.deadline()
        for one in every:
            if late():
                return
            judgement = self._strategy.judged(one.number, one)
            self._findings.judge(one, judgement, is_new=False, anew=True)

    def _is_over(self) -> bool:
        over = self._account.reached() is not None or self._evaluator.end is not None
        return self._report.is_cancelled or over

    def _must_stop(self, inputs: int) -> bool:
        self._report.measured(self._findings, inputs)
        return self._is_over()

    def _limit(self) -> _Stop | None:
        if self._report.is_cancelled:
            return _Stop(PlanningOutcome.CANCELLED, "cancelled")
        if self._evaluator.end is not None:
            return _Stop(PlanningOutcome.FAILED, str(self._evaluator.failures[0]))
        findings, because = self._findings, self._account.reached()
        if self._ended:
            # What runs is ended by a clock of its own, which may be a moment ahead of this one.
            timed = self._query.limits.response_s is not None
            words = "limit response_s reached" if timed else "it was told to stop"
            if isinstance(self._ended, Unaffordable):
                because = "limit profiling_usd reached"
            return _Stop(PlanningOutcome.EXHAUSTED, f"{because or words}; {self._ended}")
        is_patient = findings.fruitless < (self._settings.patience or inf)
        if findings.plans and not is_patient and not self._rounds.is_finishing:
            self._rounds.finish(f"no cheaper plan in {findings.fruitless} more configurations")
        failures, enough = len(findings.failed), self._settings.minimum or inf
        if failures and self._query.on_failure is OnFailure.STOP:
            return _Stop(PlanningOutcome.FAILED, str(self._evaluator.failures[0]))
        if because is None and not findings.measured and failures >= enough:
            because = f"the first {failures} configurations all failed"
        return None if because is None else _Stop(PlanningOutcome.EXHAUSTED, because)

    def _settled(self, proposal: Proposal | None) -> _Stop | None:
        if proposal is None:
            return self._nothing_left()
        count = self._findings.count
        # More inputs of a configuration that was met do not count against this limit.
        if proposal.number not in self._findings.measured:
            because = self._account.reached(count)
            if because is not None:
                return _Stop(PlanningOutcome.EXHAUSTED, because)
        chance, least = proposal.chance, self._settings.infeasible_below
        early = count < (self._settings.minimum or inf) and chance != 0
        if early or chance is None or not chance < least:
            return None
        because = (
            f"{count} configurations measured, and the models give less than a "
            f"{least:.2g} chance that any other one meets the SLOs"
        )
        if count == self._bench.setting.space.size:
            because = f"all {count} configurations measured, and none comes near the objectives"
        return _Stop(PlanningOutcome.INFEASIBLE, because)

    def _nothing_left(self) -> _Stop:
        count, size = self._findings.count, self._bench.setting.space.size
        failures, ended = len(self._findings.failed), self._rounds.because
        if count < size:
            nothing = f"nothing more worth measuring after {count} of {size} configurations"
            because = ended or self._account.reached(count) or nothing
            return _Stop(PlanningOutcome.EXHAUSTED, because)
        failed = f", {failures} of them failed" if failures else ""
        because = ended or f"all {count} configurations measured{failed}"
        return _Stop(PlanningOutcome.INFEASIBLE, because)

    def _result(self, stop: _Stop) -> PlanningResult:
        findings, outcome, because = self._findings, stop.without_plans, stop.because
        plans, why = () if self._evaluator.end else findings.plans, None
        if plans and outcome is not PlanningOutcome.CANCELLED:
            outcome = PlanningOutcome.FEASIBLE
        if outcome in (PlanningOutcome.INFEASIBLE, PlanningOutcome.EXHAUSTED):
            every, failures = tuple(findings.measured.values()), self._evaluator.failures
            if findings.failures_bind(failures, self._left_out):
                because = f"{because}; {failures[0]}"
                outcome = outcome if every else PlanningOutcome.FAILED
            confidence, late = self._settings.margin_confidence, self._account.deadline()
            setting = self._bench.setting
            why = shortfall(setting, every, findings.tail, confidence, because, late)
        return self._report.result(
            findings,
            outcome,
            because,
            shortfall=why,
            undeclared=self._undeclared,
            undecided=self._strategy.undecided(plans) if plans else None,
        )


def _drawing(graph: PipelineGraph) -> set[str]:
    return {operator.name for operator in graph.operators if operator.draws}
