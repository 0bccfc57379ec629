"""A query as the service shows it, from submission to retirement."""

from __future__ import annotations

from typing import Literal

from pydantic import AwareDatetime, Field

from circinus.api.phases import QueryPhase
from circinus.api.schemas.base import View
from circinus.api.schemas.planning import PlanningView, planned_by_default
from circinus.api.schemas.plans import PlanView, plan_view
from circinus.api.schemas.query import QueryRequest
from circinus.api.schemas.schedule import DisplacedView
from circinus.api.schemas.service import DeploymentView
from circinus.pipelines.infrastructure import Infrastructure
from circinus.pipelines.plan import Plan
from circinus.pipelines.slo import Slo
from circinus.planner.search.bill import Cost, Forecast
from circinus.planner.search.result import PlanningProgress, PlanningResult, Shortfall

Outcome = Literal["feasible", "infeasible", "exhausted", "cancelled"]
"""How planning ended."""


class BillView(View):
    """What was expected, paid and saved."""

    paid: Cost
    """Paid, warm-ups and failures included."""
    cache: Cost
    """What reused outputs saved of the inputs that were measured."""
    early_stopping: Cost
    """What ending early saved beside that."""
    against: str
    """What early stopping is compared with."""
    forecast: Forecast | None = None
    """What was expected before profiling; none: nothing was."""


class ProgressView(View):
    """How far planning is."""

    phase: str
    """What the planner is doing, in a word or two."""
    measured: int = 0
    """Configurations measured."""
    failed: int = 0
    """How many of them failed."""
    inputs: int = 0
    """(configuration, input) pairs measured."""
    spent_s: float = 0.0
    """Operator seconds spent on profiling."""
    saved_s: float = 0.0
    """Operator seconds that caches saved."""
    profiling_left_s: float | None = None
    """Operator seconds that may still be spent; none: not known."""
    elapsed_s: float | None = None
    """Wall-clock seconds since planning started; none: not known."""
    time_left_s: float | None = None
    """Wall-clock seconds left; none: not limited."""
    plans: int = 0
    """Feasible plans found so far."""
    best: PlanView | None = None
    """Cheapest feasible plan so far."""
    bill: BillView | None = None
    """What was expected, paid and saved; none: not known."""


class ShortfallView(View):
    """Why no plan meets the SLOs, and what comes closest."""

    binding: list[str]
    """SLOs that bind."""
    closest: PlanView | None
    """The closest measured plan."""
    sentence: str
    """The same in words."""
    relaxations: dict[str, float] = Field(default_factory=dict)
    """SLO -> the nearest bound that a measured plan would have met, the others as they are."""
    sure_relaxations: dict[str, float] = Field(default_factory=dict)
    """The same with the confidence of the estimates."""
    evidence: str | None = None
    """What the answer rests on."""


class ReplannedView(View):
    """That a query was planned again."""

    at: AwareDatetime
    """When."""
    why: str
    """In words: what drifted, or what was changed."""


class SearchView(View):
    """A search for other plans while the old ones serve."""

    since: AwareDatetime
    """When it was asked for."""
    why: str
    """In words: what drifted."""
    progress: ProgressView | None = None
    """How far it is; none before it starts and after it ended."""
    ended: str | None = None
    """Why it ended without plans, in words; none: it goes on."""
    ended_at: AwareDatetime | None = None
    """When; none: it goes on."""


class QueryView(View):
    """A query: what was asked, where it is, what came out."""

    id: str
    """Names the query in every path."""
    request: QueryRequest
    """What was submitted, defaults filled in."""
    phase: QueryPhase
    """Where it is on its way."""
    submitted_at: AwareDatetime
    """When it was submitted, UTC."""
    updated_at: AwareDatetime
    """When anything about it changed last, UTC."""
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
    plan_id: str | None = None
    """The plan that the schedule chose."""
    message: str | None = None
    """More about the phase, in words: why it waits, why it failed."""
    idempotency_key: str | None = None
    """With which it was submitted; none: without."""
    deployment: DeploymentView | None = None
    """Its deployment; none while there is none, and in lists."""
    replanned: list[ReplannedView] = Field(default_factory=list)
    """When other plans took the place of its plans, the latest first."""
    search: SearchView | None = None
    """The latest search for other plans while these serve; none: there was none for these."""
    displaced: list[DisplacedView] = Field(default_factory=list)
    """Where it had to make way, or others for it, the latest first; empty in lists."""


class QueryPage(View):
    """A page of queries, newest first."""

    items: list[QueryView]
    """At most `limit` of them."""
    next_cursor: str | None = None
    """Hand it back as `cursor` for the next page; none: this is the last."""


def progress_view(
    progress: PlanningProgress, slo: Slo, infrastructure: Infrastructure
) -> ProgressView:
    """Give how far planning is."""
    best = _shown(progress.best, slo, infrastructure)
    return ProgressView.of(progress, saved_s=progress.bill.cache.seconds, best=best)


def finished_view(
    result: PlanningResult, slo: Slo, infrastructure: Infrastructure
) -> ProgressView:
    """Give where planning ended."""
    best = _shown(next(iter(result.plans), None), slo, infrastructure)
    return ProgressView.of(result, phase="finished", plans=len(result.plans), best=best)


def shortfall_view(
    shortfall: Shortfall, slo: Slo, infrastructure: Infrastructure
) -> ShortfallView:
    """Give why there is no plan."""
    return ShortfallView.of(shortfall, closest=_shown(shortfall.closest, slo, infrastructure))


def _shown(plan: Plan | None, slo: Slo, infrastructure: Infrastructure) -> PlanView | None:
    return None if plan is None else plan_view(plan, slo, infrastructure)
