"""Reports of a search: its progress to whoever observes it, and its result."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from circinus.pipelines.model.configuration import Configuration
from circinus.pipelines.model.plan import Plan
from circinus.planner.models.history import ConfigurationRecord
from circinus.planner.search.bill import Bill, CallsCost, Forecast, Tally
from circinus.planner.search.budget import Account
from circinus.planner.search.failing import Tolerant
from circinus.planner.search.findings import Findings
from circinus.planner.search.result import (
    DRAWS,
    Observer,
    PlanningOutcome,
    PlanningPhase,
    PlanningProgress,
    PlanningResult,
    Shortfall,
    Trial,
    TrialState,
    undecided_words,
)

_EVERY = 10  # inputs: reports within a configuration, for pipelines that take seconds each
_LEAST_WAIT_S = 1.0  # since the last report, after which there is another


class Reporter:
    """Reports what a search did by now; without an observer only its result."""

    def __init__(
        self,
        observer: Observer | None,
        account: Account,
        evaluator: Tolerant,
        tally: Tally,
        called: Callable[[], Sequence[CallsCost]] | None,
    ) -> None:
        self._observer, self._account, self._evaluator = observer, account, evaluator
        self.tally = tally
        self.called = called or tuple[CallsCost, ...]
        self.forecast: Forecast | None = None
        self._cancelled = False
        self._trials: list[Trial] = []  # not reported yet
        self._began = self._inputs = 0  # inputs met before what is measured, and last reported
        self._waited_s = 0.0  # when progress was reported last

    @property
    def is_cancelled(self) -> bool:
        """Whether the observer has ended the search."""
        if self._observer is not None and not self._cancelled:
            self._cancelled = self._observer.cancelled()
        return self._cancelled

    def bill(self) -> Bill:
        """Return the bill until now."""
        paid = self._evaluator
        return self.tally.bill(
            paid.spent_s, self.forecast, calls_s=paid.calls_s, calls=self.called()
        )

    def begin(self, inputs: int) -> None:
        """Begin with measurements of configurations that have met so many inputs together."""
        self._began = self._inputs = inputs

    def measured(self, findings: Findings, inputs: int) -> None:
        """Report measurements under way by now and then, which have met so many inputs."""
        if inputs // _EVERY > self._inputs // _EVERY:
            self._inputs = inputs
        elif not self._account.waits.seconds - self._waited_s > _LEAST_WAIT_S:
            return
        self.progress(findings, extra_inputs=inputs - self._began)

    @property
    def reports_trials(self) -> bool:
        """Whether anybody observes the search."""
        return self._observer is not None

    def trial(
        self, configuration: Configuration, inputs: int, state: TrialState, plan: Plan | None
    ) -> None:
        """Report what a configuration does with the next progress."""
        if self._observer is not None:
            spent_s, elapsed_s = self._evaluator.spent_s, self._account.elapsed_s
            self._trials.append(
                Trial(
                    configuration=configuration,
                    inputs=inputs,
                    state=state,
                    plan=plan,
                    spent_s=spent_s,
                    elapsed_s=elapsed_s,
                )
            )

    def progress(
        self, findings: Findings, phase: PlanningPhase | None = None, extra_inputs: int = 0
    ) -> None:
        """Report where planning is."""
        if self._observer is None:
            return
        account, elapsed_s = self._account, self._account.elapsed_s
        self._waited_s = account.waits.seconds
        by_plans = PlanningPhase.IMPROVING if findings.plans else PlanningPhase.SEARCHING
        self._observer.progress(
            PlanningProgress(
                phase=phase or by_plans,
                measured=findings.count,
                failed=len(findings.failed),
                inputs=findings.inputs + extra_inputs,
                spent_s=self._evaluator.spent_s,
                profiling_left_s=account.profiling_left_s,
                elapsed_s=elapsed_s,
                time_left_s=account.budget.time_left_s(elapsed_s),
                best=findings.plans[0] if findings.plans else None,
                plans=len(findings.plans),
                new_plans=findings.newest,
                failures=self._evaluator.failures,
                left_out=tuple(sorted(self._evaluator.left_out)),
                bill=self.bill(),
                trials=tuple(self._trials),
                waited=dict(account.waits.by_cause),
            )
        )
        self._trials.clear()

    def result(
        self,
        findings: Findings,
        outcome: PlanningOutcome,
        because: str,
        *,
        shortfall: Shortfall | None,
        undeclared: Sequence[str],  # operators that draw and were not declared to
        undecided: int | None,  # configurations that may belong to the front
    ) -> PlanningResult:
        """Return the result of the search."""
        return PlanningResult(
            outcome=outcome,
            plans=() if self._evaluator.end else findings.plans,  # figures were wrong all along
            measured=findings.count,
            failed=len(findings.failed),
            inputs=findings.inputs,
            spent_s=self._evaluator.spent_s,
            stopped_because=because,
            shortfall=shortfall,
            bill=self.bill(),
            failures=self._evaluator.failures,
            left_out=tuple(sorted(self._evaluator.left_out)),
            remarks=(*(f"{name} {DRAWS}" for name in undeclared), *undecided_words(undecided)),
            seen_to_draw=tuple(undeclared),
            configurations=tuple(
                ConfigurationRecord.of(one.configuration, one.expected, one.work)
                for one in findings.measured.values()
            ),
        )
