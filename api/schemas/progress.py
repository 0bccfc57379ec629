"""A query as the service shows it, from submission to retirement."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from circinus.api.phases import QueryPhase
from circinus.api.schemas.base import Time, View
from circinus.api.schemas.deployments import DeploymentView
from circinus.api.schemas.planning import PlanningView, planned_by_default
from circinus.api.schemas.plans import EstimateView, PlanView, ServedBillView, plan_view
from circinus.api.schemas.query import QueryRequest
from circinus.api.schemas.schedule import DisplacedView
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.operators import KnobValue
from circinus.pipelines.model.plan import Plan
from circinus.pipelines.model.slo import Slo
from circinus.planner.search.bill import Cost, Forecast
from circinus.planner.search.failing import FailureCount
from circinus.planner.search.result import (
    PlanningProgress,
    PlanningSummary,
    Shortfall,
    Trial,
    TrialState,
)

_WITHOUT_NUL = r"^[^\x00]*$"
"""PostgreSQL has no NUL in texts."""
Outcome = Literal["feasible", "infeasible", "exhausted", "failed", "cancelled"]
"""How planning ended."""


class BillView(View):
    """What was expected, paid and saved."""

    paid: Cost = Field(description="Paid, warm-ups and failures included.")
    cache: Cost = Field(description="What reused outputs saved of the inputs that were measured.")
    shared_runs: int = Field(0, description="Of those runs, how many other queries had made.")
    early_stopping: Cost = Field(description="What ending early saved beside that.")
    against: str = Field(description="What early stopping is compared with.")
    forecast: Forecast | None = None
    """What was expected before profiling; none: nothing was."""


class ProgressView(View):
    """How far planning is."""

    phase: str = Field(description="What the planner is doing, in a word or two.")
    measured: int = Field(default=0, description="Configurations measured.")
    failed: int = Field(default=0, description="How many of them failed.")
    inputs: int = Field(default=0, description="(configuration, input) pairs measured.")
    spent_s: float = Field(default=0.0, description="Operator seconds spent on profiling.")
    saved_s: float = Field(default=0.0, description="Operator seconds that caches saved.")
    profiling_left_s: float | None = None
    """Operator seconds that may still be spent; none: not known."""
    elapsed_s: float | None = None
    """Wall-clock seconds since planning started; none: not known."""
    time_left_s: float | None = None
    """Wall-clock seconds left; none: not limited."""
    plans: int = Field(default=0, description="Feasible plans so far.")
    best: PlanView | None = Field(default=None, description="Cheapest feasible plan so far.")
    bill: BillView | None = None
    """What was expected, paid and saved; none: not known."""
    failures: list[FailureCount] = Field(default_factory=list)
    """Which operators failed on how many inputs, the most frequent first."""
    remarks: list[str] = Field(default_factory=list)
    """Warnings on the figures, such as that the machine was busy while they were measured."""
    waited: dict[str, float] = Field(default_factory=dict)
    """Wall-clock seconds waited, by what for: limits of endpoints, workers to start."""
    left_out: list[int] = Field(default_factory=list)
    """Inputs, by their index, that no figure stands on: they failed in every configuration."""


class TrialView(View):
    """The figures of a configuration's latest measurement.

    A later one on more inputs replaces an earlier one of the same configuration.
    """

    configuration: dict[str, dict[str, KnobValue]]
    """Operator -> knob -> value."""
    inputs: int = Field(description="On how many inputs it was measured.")
    state: TrialState
    """Whether it has a plan, or why not."""
    plan_id: str | None = Field(default=None, description="Its cheapest plan; none: it has none.")
    accuracy: EstimateView | None = Field(default=None, description="Mean score; none: it failed.")
    latency_s: EstimateView | None = None
    """Seconds of its cheapest plan; without any, of its fastest deployment; none: it failed."""
    cost_usd_per_hour: float | None = Field(default=None, description="Price of the same.")
    placement: dict[str, str] = Field(default_factory=dict, description="The same's.")
    spent_s: float = Field(description="Operator seconds that the search had paid by then.")
    elapsed_s: float = Field(description="Wall-clock seconds since planning started.")


class ShortfallView(View):
    """Why no plan meets the SLOs, and the closest configuration."""

    binding: list[str] = Field(description="SLOs that bind.")
    closest: PlanView | None = Field(description="The closest measured plan.")
    sentence: str = Field(description="The same in words.")
    relaxations: dict[str, float] = Field(default_factory=dict)
    """SLO -> the nearest bound that a measured plan would have met, the others as they are."""
    sure_relaxations: dict[str, float] = Field(default_factory=dict)
    """The same with the confidence of the estimates."""
    evidence: str | None = Field(default=None, description="What the answer rests on.")


class ReplannedView(View):
    """That a query was planned again."""

    at: Time = Field(description="When.")
    why: str = Field(description="In words: what drifted, or what was changed.")


class SearchView(View):
    """A search for other plans while the old ones serve."""

    since: Time = Field(description="When it was requested.")
    why: str = Field(description="In words: what drifted.")
    progress: ProgressView | None = None
    """How far it is; none before it starts and after it ended."""
    ended: str | None = None
    """Why it ended without plans, in words; none: it goes on."""
    ended_at: Time | None = Field(default=None, description="When; none: it goes on.")


class QueryView(View):
    """A query: its request, its phase, its results."""

    id: str = Field(description="Names the query in every path.")
    request: QueryRequest = Field(description="What was submitted, defaults filled in.")
    phase: QueryPhase = Field(description="Where it is on its way.")
    submitted_at: Time = Field(description="When it was submitted, UTC.")
    updated_at: Time = Field(description="When anything about it changed last, UTC.")
    planning: PlanningView = Field(default_factory=planned_by_default)
    """How it is planned."""
    progress: ProgressView | None = None
    """How far planning is; none before it starts."""
    outcome: Outcome | None = None
    """How planning ended; none until then."""
    stopped_because: str | None = None
    """What ended the search, in words."""
    shortfall: ShortfallView | None = None
    """For a query without a feasible plan: what binds."""
    plan_id: str | None = Field(default=None, description="The plan that the schedule chose.")
    pool: dict[str, dict[str, int]] | None = None
    """Mix of machine types that should serve it: tier -> type -> slices; none: its plan's own
    replicas."""
    replicas: int | None = None
    """The requested number; none: replicas follow the rate of its requests."""
    message: str | None = None
    """More about the phase, in words: why it waits, why it failed."""
    idempotency_key: str | None = None
    """With which it was submitted; none: without."""
    deployment: DeploymentView | None = None
    """Its deployment; none while there is none, and in lists."""
    replanned: list[ReplannedView] = Field(default_factory=list)
    """When other plans replaced its plans, the latest first."""
    search: SearchView | None = None
    """The latest search for other plans while these serve; none: there was none for these."""
    displaced: list[DisplacedView] = Field(default_factory=list)
    """Where it had to make way, or others for it, the latest first; empty in lists."""
    billed: list[ServedBillView] = Field(default_factory=list)
    """What serving its requests used of endpoints, a plan each; empty in lists."""


class PageRequest(BaseModel):
    """Which queries to list; of what is left out, any."""

    limit: Annotated[int, Field(ge=1, le=200)] = 50
    cursor: Annotated[str | None, Field(max_length=200, pattern=r"^[A-Za-z0-9_-]*$")] = None
    phase: QueryPhase | None = None
    tenant: Annotated[str | None, Field(max_length=63, pattern=_WITHOUT_NUL)] = None
    key_prefix: Annotated[
        str | None, Field(min_length=1, max_length=200, pattern=_WITHOUT_NUL)
    ] = None
    unfinished: bool = False  # only those that something will still happen to by itself


class QueryPage(View):
    """A page of queries, newest first."""

    items: list[QueryView] = Field(description="At most `limit` of them.")
    next_cursor: str | None = None
    """Hand it back as `cursor` for the next page; none: this is the last."""


def progress_view(
    figures: PlanningProgress | PlanningSummary, slo: Slo, infrastructure: Infrastructure
) -> ProgressView:
    """Return how far planning is, or where it ended."""
    best = _plan_view(figures.best, slo, infrastructure)
    if isinstance(figures, PlanningSummary):
        return ProgressView.of(figures, phase="finished", best=best)
    return ProgressView.of(figures, saved_s=figures.bill.cache.seconds, best=best)


def trial_view(trial: Trial) -> TrialView:
    """Return the view of a configuration's measurement."""
    plan, figures = trial.plan, dict[str, object]()
    if plan is not None:
        has_plan = trial.state is TrialState.FEASIBLE
        figures = {
            "plan_id": plan.id if has_plan else None,
            "placement": plan.deployment.placement,
        }
        figures |= {name: getattr(plan, name) for name in _OF_PLANS}
    return TrialView.of(trial, configuration=trial.configuration.as_dict(), **figures)


_OF_PLANS = ("accuracy", "latency_s", "cost_usd_per_hour")


def shortfall_view(
    shortfall: Shortfall | None, slo: Slo, infrastructure: Infrastructure
) -> ShortfallView | None:
    """Return why there is no plan; None: there is one."""
    if shortfall is None:
        return None
    return ShortfallView.of(shortfall, closest=_plan_view(shortfall.closest, slo, infrastructure))


def _plan_view(plan: Plan | None, slo: Slo, infrastructure: Infrastructure) -> PlanView | None:
    return None if plan is None else plan_view(plan, slo, infrastructure)
