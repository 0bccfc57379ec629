"""The search for the plans of one query: ask, measure, tell, tighten, stop.

Circinus 4.2, algorithm 1; its warm start is a matter of strategies. Configurations are searched,
placements and allocations are computed from each measured profile. The paper's models
know a plan with its placement; here a placement costs no measurement, so searching it
would only spread observations thinner: the latency model predicts the least latency
over all placements at full shares, and the probability is that of meeting the SLO there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from typing import NamedTuple

import numpy as np

from circinus.pipelines import checks
from circinus.pipelines.clock import Clock, SystemClock, Waits
from circinus.pipelines.errors import Stopped, Unaffordable
from circinus.pipelines.model.configuration import Configuration, ConfigurationSpace
from circinus.pipelines.model.graph import PipelineGraph
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.plan import Plan
from circinus.pipelines.model.profile import Evaluator, StoppingRule
from circinus.pipelines.model.query import OnFailure, Query
from circinus.pipelines.model.slo import HoldsFor
from circinus.planner.deployment.placement import MOST_PLACEMENTS
from circinus.planner.models.ahead import doubt
from circinus.planner.models.history import ConfigurationRecord, QueryRecord
from circinus.planner.plans.auditing import Audit, Audited
from circinus.planner.plans.failing import Tolerant
from circinus.planner.plans.measuring import (
    Bench,
    FailedMeasurement,
    LatencyLooks,
    PartScores,
    counted_anew,
    measured,
)
from circinus.planner.plans.plans import MARGIN_CONFIDENCE
from circinus.planner.search.bill import Bill, Budget, CallsCost, Forecast, Tally
from circinus.planner.search.findings import Findings
from circinus.planner.search.finishing import Finishing
from circinus.planner.search.forecasting import Probes, from_probes, probed, with_waits
from circinus.planner.search.result import (
    DRAWS,
    Observer,
    PlanningOutcome,
    PlanningPhase,
    PlanningProgress,
    PlanningResult,
    undecided_words,
)
from circinus.planner.search.rounds import proposed
from circinus.planner.search.shortfall import shortfall
from circinus.planner.search.trials import Trial, TrialState, fastest_plan, state_of
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
_REPORT_EVERY = 10  # inputs: reports within a configuration, for pipelines that take seconds each
_LEAST_WAIT_S = 1.0  # since the last report, after which there is another
_LEAST_REPORT_S = 1.0  # that saying why there is no plan may take after a limit


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSettings:
    """Settings of the search."""

    strategy: StrategyFactory = MultiFidelity
    # New configurations without a cheaper feasible plan after which the search ends, once there is
    # one, `>= 1`. 100: strategies that know what they may still save stop earlier by themselves.
    patience: int = 100
    # Configurations to measure before the models may call the query hopeless, `>= 1`. 30: with
    # fewer they have not seen most knob values.
    minimum: int = 30
    # That is, when they give less than this chance that any other configuration meets the SLOs, in
    # [0, 1). 0.1 %.
    hopeless: float = 1e-3
    most_plans: int = 24  # of the Pareto set, `>= 1`. 24: what the scheduler can weigh per query
    most_placements: int = MOST_PLACEMENTS  # beyond, only those that never send data back down
    looks: LatencyLooks = field(default_factory=LatencyLooks)
    # Of the latency interval whose upper end must meet the SLO after tightening, in (0, 1); None:
    # the estimate itself must. 99 %: tightened to the estimate every other plan would be late.
    margin_confidence: float | None = MARGIN_CONFIDENCE
    # What the search is expected to cost, or the probes to tell it from; None: nothing is.
    forecast: Forecast | Probes | None = None
    # Says what accuracies are where scores may be wrong; None: these are right.
    audit: Audit | None = None
    # Scores inputs by all outputs of a configuration; None: each output has a score of its own.
    scores: PartScores | None = None
    # Gives what calls cost until now, by operator, whatever was lost included; None: nothing calls
    called: Callable[[], Sequence[CallsCost]] | None = None
    # What is waited for while it measures, which is no work; None: nothing is
    waits: Waits | None = None

    def __post_init__(self) -> None:
        for name in ("patience", "minimum", "most_plans", "most_placements"):
            checks.at_least(f"search.{name}", getattr(self, name), 1)
        within = 0 <= self.hopeless < 1
        checks.require(within, "search.hopeless", "must be in [0, 1)", self.hopeless)
        if self.margin_confidence is not None:
            checks.open_probability("search.margin_confidence", self.margin_confidence)


def search(  # noqa: PLR0913 - four things to plan, three ways to go about it; each has a default
    query: Query,
    infrastructure: Infrastructure,
    evaluator: Evaluator,  # of the query's pipeline
    rule: StoppingRule | None = None,  # says what is accurate enough; None: the strategy does
    *,
    settings: SearchSettings | None = None,
    observer: Observer | None = None,  # is told of progress and may cancel
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
        self._bench, self._settings, self._observer = bench, settings, observer
        self._clock, self._start, self._cancelled = clock, clock.now(), False
        setting, query = bench.setting, bench.setting.context.query
        self._evaluator = Tolerant(evaluator, query.on_failure, setting.space.size)
        self._budget = Budget.of(query.limits, setting.context.infrastructure)
        self._begin()
        price = self._budget.price_usd_per_hour
        self._tally = Tally(setting.context.graph, setting.population, price)
        expected = settings.forecast
        self._forecast = expected if isinstance(expected, Forecast) else None
        self._met = self._told = 0  # inputs met before by what is measured, and told of
        self._left_out = self._evaluator.left_out
        self._seen_to_draw: list[str] = []  # operators that were not declared to
        self._ended: Stopped | None = None  # when what was running was told to stop
        self._trials: list[Trial] = []  # not told of yet
        self._waited_told_s = 0.0  # when progress was reported last
        self._finishing = Finishing()

    def _begin(self) -> None:
        setting, settings = self._bench.setting, self._settings

        def made() -> Strategy:
            # The seed is part of the query, so that every process plans it alike.
            rng = np.random.Generator(np.random.PCG64(setting.context.query.seed))
            return settings.strategy(setting, rng)

        audit = settings.audit
        self._strategy = made() if audit is None else Audited(made, audit, setting)
        most, confidence = settings.most_plans, settings.margin_confidence
        self._findings = Findings(setting, most, confidence)

    def run(self) -> PlanningResult:
        """Return the result of the whole search."""
        stop = self._too_few()
        if stop is None:
            self._probe()
            stop = self._limit()
        while stop is None:
            proposals = self._proposals()
            stop = self._settled(proposals[0] if proposals else None)
            if proposals and stop is None:
                self._take(proposals)
                self._report()
                stop = self._limit()
        if stop.without_plans is not PlanningOutcome.CANCELLED:
            findings = self._findings
            every = tuple(findings.measured.values())
            self._judge_again(findings.behind if findings.plans else every)
        self._report(PlanningPhase.FINISHED)
        return self._result(stop)

    def _too_few(self) -> _Stop | None:
        """Say how many examples would do when these cannot show what is asked."""
        asked, told = self._bench.setting.asked, None
        if asked.holds_for is HoldsFor.FUTURE:
            told = doubt(asked, self._evaluator.population)
        return None if told is None else _Stop(PlanningOutcome.INFEASIBLE, told)

    def _probe(self) -> None:
        """Say what the search is expected to cost, within the limits."""
        probes, setting = self._settings.forecast, self._bench.setting
        tiers = setting.context.infrastructure
        if isinstance(probes, Probes):
            # A stream of its own: probes change nothing about the search but what is known.
            seed = [setting.context.query.seed, _PROBE_STREAM]
            rng = np.random.Generator(np.random.PCG64(seed))
            try:
                profiles = probed(probes, setting.space, self._evaluator, rng, self._is_over)
            except Stopped as stopped:
                self._ended, profiles = stopped, []
            for profile in profiles:
                self._tally.pay(profile)
            self._forecast = from_probes(
                profiles,
                setting.space,
                self._evaluator,
                self._budget,
                probes.span,
                self._called(),
            )
        if self._forecast is not None:
            limit_s = self._budget.limits.response_s or inf
            population = setting.population
            self._forecast = with_waits(self._forecast, setting.space, population, tiers, limit_s)
        if probes is not None:
            self._report(PlanningPhase.PROBING)

    def _proposals(self) -> list[Proposal]:
        """Return what to measure next: for a cheaper plan, and then to know the front."""
        findings, strategy = self._findings, self._strategy
        new = (self._budget.limits.configurations or inf) - findings.count
        choose = partial(proposed, met=findings.inputs_of, width=self._evaluator.width, new=new)
        if not (findings.plans and self._finishing.has_begun):
            if proposals := choose(strategy.propose):
                return proposals
            self._finishing.begin(calls_usd=self._evaluator.calls_usd, own_s=self._own_s)
        chosen = choose(partial(strategy.finishing, findings.plans)) if findings.plans else []
        if chosen and not self._finishing.may_go_on(
            calls_usd=self._evaluator.calls_usd,
            own_s=self._own_s,
            response_s=self._budget.limits.response_s,
        ):
            return []
        self._finishing.make(len(chosen))
        return chosen

    def _take(self, proposals: Sequence[Proposal]) -> None:
        findings = self._findings
        known = [findings.inputs_of(proposal.number) for proposal in proposals]
        self._met = self._told = sum(known)
        findings.newest = ()  # reports while it is measured tell of no plan twice
        met_by = findings.inputs_of
        try:
            every = measured(self._bench, self._evaluator, proposals, met_by, self._must_stop)
        except Stopped as stopped:
            self._ended = stopped
            return
        for one in every:
            self._tally.pay(one.profile)
        if _drawing(self._evaluator.graph) != _drawing(self._bench.setting.context.graph):
            self._draw()
            every = self._counted_anew(every)
        elif self._evaluator.left_out != self._left_out:
            self._left_out = self._evaluator.left_out
            every = self._counted_anew(every)
        for met, one in zip(known, every, strict=True):
            self._learn(one, is_new=met == 0)

    def _draw(self) -> None:
        """Go on as declared: operators were seen to answer equal inputs differently."""
        setting, drawing = self._bench.setting, _drawing(self._evaluator.graph)
        graph = setting.context.graph  # without what the query rules out
        self._seen_to_draw += sorted(drawing - _drawing(graph))
        operators = (replace(each, draws=each.name in drawing) for each in graph.operators)
        graph = replace(graph, operators=tuple(operators))
        context, space = replace(setting.context, graph=graph), ConfigurationSpace(graph)
        self._bench = replace(self._bench, setting=replace(setting, context=context, space=space))

    def _counted_anew(
        self, newest: Sequence[Measured | FailedMeasurement]
    ) -> tuple[Measured | FailedMeasurement, ...]:
        """Tell all that was measured again, as it counts now that inputs left or came back.

        Models add up what they are told: new ones are told the whole, in order.
        """
        told = self._findings
        self._begin()
        for failed in told.failed:
            self._learn(failed, is_new=True)
        for one in told.measured.values():
            profile = self._evaluator.counted(one.configuration)
            self._learn(counted_anew(self._bench, one, profile), is_new=True)
        counted = self._evaluator.counted
        return tuple(
            counted_anew(self._bench, one, counted(one.profile.configuration)) for one in newest
        )

    def _learn(self, one: Measured | FailedMeasurement, *, is_new: bool) -> None:
        if isinstance(one, FailedMeasurement):
            self._findings.fail(one)
            self._strategy.observe(one.number, None)
            if one.failure.ends_planning:
                self._evaluator.learn([one.profile])
            self._try(one.profile.configuration, one.inputs, TrialState.FAILED, None)
            return
        if one.ending is not Ending.CUT_OFF:
            self._tally.end_early(one.configuration, one.work.operator_s)
        seen = self._findings.observed(one)
        self._strategy.observe(one.number, seen)
        judgement = self._strategy.judged(one.number, seen)
        plans, setting = self._findings.judge(one, judgement, is_new=is_new), self._bench.setting
        if self._observer is not None:
            state = state_of(setting, one, judgement, has_plan=bool(plans))
            plan = plans[0] if plans else fastest_plan(setting, one)
            self._try(one.configuration, one.inputs, state, plan)

    def _try(
        self, configuration: Configuration, inputs: int, state: TrialState, plan: Plan | None
    ) -> None:
        if self._observer is None:  # nobody is told
            return
        self._trials.append(
            Trial(
                configuration=configuration,
                inputs=inputs,
                state=state,
                plan=plan,
                spent_s=self._evaluator.spent_s,
                elapsed_s=self._elapsed_s,
            )
        )

    def _judge_again(self, every: Sequence[Measured]) -> None:
        """Look for plans once more: what was measured later tells of what was earlier, too."""
        late = self._too_late()
        for one in every:
            if late():
                return
            judgement = self._strategy.judged(one.number, one)
            self._findings.judge(one, judgement, is_new=False, anew=True)

    def _limit(self) -> _Stop | None:
        if self._is_cancelled():
            return _Stop(PlanningOutcome.CANCELLED, "cancelled")
        if self._evaluator.end is not None:
            return _Stop(PlanningOutcome.FAILED, str(self._evaluator.failures[0]))
        findings, because = self._findings, self._reached(within=True)
        if self._ended:
            # What runs is ended by a clock of its own, which may be a moment ahead of this one.
            timed = self._budget.limits.response_s is not None
            told = "limit response_s reached" if timed else "it was told to stop"
            if isinstance(self._ended, Unaffordable):
                because = "limit profiling_usd reached"
            return _Stop(PlanningOutcome.EXHAUSTED, f"{because or told}; {self._ended}")
        fruitless = findings.fruitless
        patient = fruitless < self._settings.patience or self._finishing.has_begun
        if findings.plans and not patient:
            told = f"no cheaper plan in {fruitless} more configurations"
            self._finishing.begin(
                calls_usd=self._evaluator.calls_usd, own_s=self._own_s, because=told
            )
        failures = len(findings.failed)
        if failures and self._bench.setting.context.query.on_failure is OnFailure.STOP:
            return _Stop(PlanningOutcome.FAILED, str(self._evaluator.failures[0]))
        if because is None and not findings.measured and failures >= self._settings.minimum:
            because = f"the first {failures} configurations all failed"
        return None if because is None else _Stop(PlanningOutcome.EXHAUSTED, because)

    def _settled(self, proposal: Proposal | None) -> _Stop | None:
        if proposal is None:
            return self._nothing_left()
        is_new = proposal.number not in self._findings.measured
        # More inputs of a configuration that was met do not count against this limit.
        if is_new and (reached := self._reached()) is not None:
            return _Stop(PlanningOutcome.EXHAUSTED, reached)
        chance, hopeless = proposal.chance, self._settings.hopeless
        count = self._findings.count
        early = count < self._settings.minimum and chance != 0
        if early or chance is None or not chance < hopeless:
            return None
        if count == self._bench.setting.space.size:
            because = f"all {count} configurations measured, and none comes near the objectives"
        else:
            because = (
                f"{count} configurations measured, and the models give less than a "
                f"{hopeless:.2g} chance that any other one meets the SLOs"
            )
        return _Stop(PlanningOutcome.INFEASIBLE, because)

    def _nothing_left(self) -> _Stop:
        count, size = self._findings.count, self._bench.setting.space.size
        failures = len(self._findings.failed)
        failed = f", {failures} of them failed" if failures else ""
        if count < size:
            nothing = f"nothing more worth measuring after {count} of {size} configurations"
            because = self._finishing.because or self._reached() or nothing
            return _Stop(PlanningOutcome.EXHAUSTED, because)
        because = self._finishing.because or f"all {count} configurations measured{failed}"
        return _Stop(PlanningOutcome.INFEASIBLE, because)

    @property
    def _elapsed_s(self) -> float:
        return self._clock.now() - self._start

    @property
    def _waited_s(self) -> float:
        waits = self._settings.waits
        return 0.0 if waits is None else waits.seconds

    @property
    def _own_s(self) -> float:
        return self._elapsed_s - self._evaluator.spent_s

    def _is_cancelled(self) -> bool:
        """Return whether the observer ever said so."""
        if self._observer is not None and not self._cancelled:
            self._cancelled = self._observer.cancelled()
        return self._cancelled

    def _is_over(self) -> bool:
        over = self._reached(within=True) is not None or self._evaluator.end is not None
        return self._is_cancelled() or over

    def _must_stop(self, inputs: int) -> bool:
        if inputs // _REPORT_EVERY > self._told // _REPORT_EVERY:
            self._told = inputs
            self._report(extra_inputs=inputs - self._met)
        elif self._waited_s - self._waited_told_s > _LEAST_WAIT_S:
            self._report(extra_inputs=inputs - self._met)
        return self._is_over()

    def _reached(self, *, within: bool = False) -> str | None:
        return self._budget.reached(
            spent_s=self._evaluator.spent_s,
            calls_s=self._evaluator.calls_s,
            calls_usd=self._evaluator.calls_usd,
            waited_s=self._waited_s,
            elapsed_s=self._elapsed_s,
            configurations=0 if within else self._findings.count,
        )

    def _bill(self) -> Bill:
        evaluator, calls = self._evaluator, self._called()
        return self._tally.bill(
            evaluator.spent_s, self._forecast, calls_s=evaluator.calls_s, calls=calls
        )

    def _called(self) -> Sequence[CallsCost]:
        called = self._settings.called
        return () if called is None else called()

    def _report(self, phase: PlanningPhase | None = None, extra_inputs: int = 0) -> None:
        if self._observer is None:
            return
        spent, elapsed, findings = self._evaluator.spent_s, self._elapsed_s, self._findings
        waits, self._waited_told_s = self._settings.waits, self._waited_s
        by_plans = PlanningPhase.IMPROVING if findings.plans else PlanningPhase.SEARCHING
        self._observer.progress(
            PlanningProgress(
                phase=phase or by_plans,
                measured=findings.count,
                failed=len(findings.failed),
                inputs=findings.inputs + extra_inputs,
                spent_s=spent,
                profiling_left_s=self._budget.left_s(
                    machine_s=spent - self._evaluator.calls_s,
                    calls_usd=self._evaluator.calls_usd,
                ),
                elapsed_s=elapsed,
                time_left_s=self._budget.time_left_s(elapsed),
                best=findings.plans[0] if findings.plans else None,
                plans=len(findings.plans),
                found=findings.newest,
                failures=self._evaluator.failures,
                left_out=tuple(sorted(self._evaluator.left_out)),
                bill=self._bill(),
                trials=tuple(self._trials),
                waited={} if waits is None else dict(waits.by_cause),
            )
        )
        self._trials.clear()

    def _result(self, stop: _Stop) -> PlanningResult:
        findings, outcome, why = self._findings, stop.without_plans, None
        plans = () if self._evaluator.end else findings.plans  # figures were wrong all along
        if plans and outcome is not PlanningOutcome.CANCELLED:
            outcome = PlanningOutcome.FEASIBLE
        every = tuple(findings.measured.values())
        because, failures = stop.because, self._evaluator.failures
        if outcome in (PlanningOutcome.INFEASIBLE, PlanningOutcome.EXHAUSTED):
            if findings.failures_bind(failures, self._left_out):
                because = f"{because}; {failures[0]}"
                outcome = outcome if every else PlanningOutcome.FAILED
            confidence = self._settings.margin_confidence
            setting, late = self._bench.setting, self._too_late()
            why = shortfall(setting, every, findings.tail, confidence, because, late)
        bill = self._bill()
        return PlanningResult(
            outcome=outcome,
            plans=plans,
            measured=findings.count,
            failed=len(findings.failed),
            inputs=findings.inputs,
            spent_s=self._evaluator.spent_s,
            saved_s=bill.cache.seconds,
            stopped_because=because,
            shortfall=why,
            bill=bill,
            failures=failures,
            left_out=tuple(sorted(self._evaluator.left_out)),
            remarks=(*(f"{name} {DRAWS}" for name in self._seen_to_draw), *self._undecided(plans)),
            seen_to_draw=tuple(self._seen_to_draw),
            configurations=tuple(
                ConfigurationRecord.of(m.configuration, m.expected, m.work) for m in every
            ),
        )

    def _undecided(self, plans: Sequence[Plan]) -> tuple[str, ...]:
        """Return how much of the front is not known, in words."""
        return undecided_words(self._strategy.undecided(plans) if plans else None)

    def _too_late(self) -> Callable[[], bool]:
        """Return what says whether the answer has to be given."""
        elapsed_s = self._elapsed_s
        left_s = self._budget.own_left_s(
            spent_s=self._evaluator.spent_s, elapsed_s=elapsed_s, waited_s=self._waited_s
        )
        end_s = elapsed_s + max(left_s, _LEAST_REPORT_S)
        return lambda: self._elapsed_s > end_s


def _drawing(graph: PipelineGraph) -> set[str]:
    return {operator.name for operator in graph.operators if operator.draws}
