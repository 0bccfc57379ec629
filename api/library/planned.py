"""The result of `circinus.plan`: plans, explanations, what-if answers, and a chain to run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from circinus.api.drawing.front import front_svg
from circinus.api.drawing.search import search_svg
from circinus.api.library.display import (
    Picture,
    ResultExplanation,
    ResultPlan,
    ResultWhatIf,
    result_html,
    result_text,
)
from circinus.api.library.findings import PlannedFindings, read_findings, text_of
from circinus.api.library.inputs import Handed, Plannable
from circinus.api.schemas.explanation import WhatIfBody
from circinus.api.schemas.plans import EstimateView, plan_view
from circinus.api.schemas.progress import ShortfallView, TrialView, shortfall_view
from circinus.api.schemas.violations import checked
from circinus.api.text import formats
from circinus.pipelines import checks
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.execution.needs import package, require
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.operators import KnobValue
from circinus.pipelines.model.plan import Plan
from circinus.planner.search.bill import Bill
from circinus.planner.search.failing import FailureCount
from circinus.planner.search.result import PlanningOutcome

if TYPE_CHECKING:
    import pandas as pd

Which: TypeAlias = Literal["front", "search"]
Change: TypeAlias = str | float
"""`0.8x` times, `+2` and `-2` more or fewer, `5` or the number 5 exactly."""
PlanName: TypeAlias = ResultPlan | str | None
"""A plan, or its id; None: the best."""


class Planned:
    """The result of planning. Nothing here measures anything."""

    def __init__(self, findings: PlannedFindings, handed: Handed | None = None) -> None:
        self._findings = findings
        self._handed = handed  # None: read from a file
        result, slo, tiers = findings.result, findings.query.slo, findings.infrastructure
        self.front: tuple[ResultPlan, ...] = tuple(
            ResultPlan.model_validate(plan_view(plan, slo, tiers)) for plan in result.plans
        )
        """The plans that none of the others beats, cheapest first."""
        self.outcome: PlanningOutcome = result.outcome
        """How planning ended: `feasible`, `infeasible`, `exhausted`, `failed`, `cancelled`."""
        self.interrupted: bool = findings.interrupted
        """Whether it was interrupted: more would have been measured, and the same call does."""
        self.shortfall: ShortfallView | None = shortfall_view(result.shortfall, slo, tiers)
        """Why there is no plan, and the closest configuration; None: there is one, or unknown."""
        self.trials: tuple[TrialView, ...] = findings.trials
        """The newest trial of each measured configuration, in the order of measuring."""
        self.bill: Bill = result.bill
        """What was expected, paid and saved."""
        self.remarks: tuple[str, ...] = result.remarks
        """Warnings on the figures, such as that the machine was busy."""
        self.failures: tuple[FailureCount, ...] = result.failures
        """Which operators failed on how many inputs, the most frequent first."""
        self.left_out: tuple[int, ...] = result.left_out
        """Inputs, by their index, that no figure stands on: they failed in every configuration."""
        self.infrastructure: Infrastructure = tiers
        """The tiers that were planned for."""

    @property
    def best(self) -> ResultPlan | None:
        """The cheapest plan that meets the objectives; None: none does, see `shortfall`."""
        return next(iter(self.front), None)

    @property
    def cheapest(self) -> ResultPlan | None:
        """The same: plans meet the objectives, and the cheapest is first."""
        return self.best

    @property
    def fastest(self) -> ResultPlan | None:
        """The plan of least latency; None: there is none."""
        by_latency = sorted(self.front, key=lambda plan: plan.latency_s.value or 0.0)
        return next(iter(by_latency), None)

    @property
    def most_accurate(self) -> ResultPlan | None:
        """The plan of highest accuracy, the cheapest of these; None: there is none."""
        return max(self.front, key=lambda plan: plan.accuracy.value or 0.0, default=None)

    @property
    def words(self) -> tuple[str, ...]:
        """How planning ended, in sentences."""
        result = self._findings.result
        ended = (
            "interrupted, the same call goes on"
            if self.interrupted
            else f"stopped because {result.stopped_because}"
        )
        failed = [f"{f.operator} failed on {f.inputs} inputs: {f.cause}" for f in result.failures]
        return (
            f"{result.outcome.value}: {_counted(len(self.front), 'plan')} of "
            f"{_counted(result.measured, 'configuration')} measured, "
            f"{formats.seconds(result.spent_s)} of operators spent; {ended}",
            f"asked: {formats.objectives(self._findings.request)}",
            *failed,
            *formats.left_out_lines(result.left_out),
            *result.remarks,
        )

    def explain(self, plan: PlanName = None) -> ResultExplanation:
        """Return why a plan is what it is: what its operators take and cost, what was ruled out.

        InvalidInput if there is no such plan.
        """
        findings = self._findings
        tiers = findings.infrastructure
        view = findings.knowledge.explain(self._plan(plan), findings.query, tiers)
        return ResultExplanation.model_validate(view)

    def whatif(  # noqa: PLR0913 - what a service's body has, each with a default
        self,
        *,
        accuracy: Change = "",
        latency: Change = "",
        cost: Change = "",
        cost_per_1000: Change = "",
        price: Mapping[str, Change] | None = None,
        machines: Mapping[str, Change] | None = None,
        speed: Mapping[str, Change] | None = None,
        bandwidth: Mapping[str, Change] | None = None,
        rate: tuple[float, float] | None = None,
    ) -> ResultWhatIf:
        """Return the effect of other objectives or another infrastructure, measuring nothing.

        `0.8x` times, `+2` and `-2` more or fewer, `5` exactly; `price`, `machines` and `speed` are
        by tier, `bandwidth` by link (`device-edge`, Mbit/s). `rate`: the range of requests per
        second to search for the rate at which machines become cheaper than calls. InvalidInput if
        a change is malformed or impossible.
        """
        slos = {"accuracy": accuracy, "latency": latency, "cost": cost}
        slos["cost_per_1000"] = cost_per_1000
        tiers = {"price": price, "machines": machines, "speed": speed, "bandwidth": bandwidth}
        document = {name: _change(name, change) for name, change in slos.items()} | {
            name: {tier: _change(f"{name}.{tier}", change) for tier, change in of.items()}
            for name, of in tiers.items()
            if of is not None
        }
        if rate is not None:
            document["rate"] = ":".join(f"{float(each):.17g}" for each in rate)
        findings, change = self._findings, checked(WhatIfBody, document)
        view = findings.knowledge.what_if(findings.query, findings.infrastructure, change)
        return ResultWhatIf.model_validate(view)

    def as_runnable(self, plan: PlanName = None, *, of: Plannable | None = None) -> Any:  # noqa: ANN401 - LangChain's
        """Return the planned chain, configured by a plan: the best, if none is named.

        A pipeline that was read off no chain becomes a Runnable of its operators. A result that
        was read from a file needs its chain or pipeline as `of`. InvalidInput if that is missing,
        or there is no such plan.
        """
        from circinus.pipelines.langchain import configured, runnable_of

        configuration = self._plan(plan).configuration
        if of is None and self._handed is not None:
            of = self._handed.pipeline if self._handed.chain is None else self._handed.chain
        if of is None:
            raise InvalidInput.of("of", "must be the chain or pipeline: a file holds none", of)
        if isinstance(of, Pipeline):
            return runnable_of(of, configuration)
        return configured(of, configuration)

    def to_frame(self, which: Which = "front") -> pd.DataFrame:
        """Return the plans as a data frame by their id; `search`: the configurations measured.

        InvalidInput if pandas is not installed.
        """
        require("to_frame", which, [package("pandas", extra="notebook")])
        import pandas as pd

        if _which(which) == "search":
            return pd.DataFrame([_trial_row(trial) for trial in self.trials])
        rows = [_plan_row(plan) for plan in self.front]
        return pd.DataFrame(rows, index=pd.Index([p.id for p in self.front], name="plan"))

    def plot(self, which: Which = "front") -> Picture:
        """Return a drawing of plans by cost and accuracy; `search`: of the search over time."""
        slo = self._findings.request.slo
        if _which(which) == "search":
            return Picture(search_svg(self.trials, slo))
        chosen = None if self.best is None else self.best.id
        return Picture(front_svg(self.front, self.trials, slo, chosen))

    def save(self, path: str | Path) -> None:
        """Write all of it to a file that `circinus.load` reads; OSError if it cannot be written.

        The file holds no input, no output and no code.
        """
        Path(path).write_text(text_of(self._findings), encoding="utf-8")

    def __repr__(self) -> str:
        """Return it for a shell."""
        return result_text(self.words, self.front, self.shortfall)

    def _repr_html_(self) -> str:
        return result_html(self.words, self.front, self.shortfall)

    def _plan(self, name: PlanName) -> Plan:
        plans = {plan.id: plan for plan in self._findings.result.plans}
        wanted = name.id if isinstance(name, ResultPlan) else name
        rule = "must be there: no plan was found, see shortfall"
        checks.require(bool(plans), "plan", rule, wanted)
        if wanted is None:
            return next(iter(plans.values()))
        checks.require(wanted in plans, "plan", f"must be one of {', '.join(plans)}", wanted)
        return plans[wanted]


def load(path: str | Path) -> Planned:
    """Return what `save` wrote; InvalidInput if the file is none, or of another version."""
    return Planned(read_findings(Path(path)))


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _which(which: Which) -> Which:
    checks.among("which", which, ("front", "search"))
    return which


def _change(name: str, change: Change) -> str:
    if isinstance(change, str):
        return change
    rule = "must be >= 0, or text such as '-2' for so much less"
    checks.require(change >= 0, name, rule, change)
    return repr(float(change))


def _plan_row(plan: ResultPlan) -> dict[str, object]:
    return {
        **_figures(plan.accuracy, "accuracy"),
        **_figures(plan.latency_s, "latency_s"),
        "cost_usd_per_hour": plan.cost_usd_per_hour,
        "cost_usd_per_1000_requests": plan.cost_usd_per_1000_requests,
        **{f"{slo} is": state.value for slo, state in plan.states.items()},
        **{f"{operator} on": tier for operator, tier in plan.placement.items()},
        **_knobs(plan.configuration),
    }


def _trial_row(trial: TrialView) -> dict[str, object]:
    return {
        "state": trial.state.value,
        "inputs": trial.inputs,
        **_figures(trial.accuracy, "accuracy"),
        **_figures(trial.latency_s, "latency_s"),
        "cost_usd_per_hour": trial.cost_usd_per_hour,
        "spent_s": trial.spent_s,
        "elapsed_s": trial.elapsed_s,
        **_knobs(trial.configuration),
    }


def _figures(estimate: EstimateView | None, name: str) -> dict[str, object]:
    parts = {name: "value", f"{name} low": "low", f"{name} high": "high"}
    return {column: getattr(estimate, part, None) for column, part in parts.items()}


def _knobs(configuration: Mapping[str, Mapping[str, KnobValue]]) -> dict[str, object]:
    return {
        f"{operator}.{knob}": value
        for operator, knobs in configuration.items()
        for knob, value in knobs.items()
    }
