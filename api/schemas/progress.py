"""A query as the service shows it, from submission to retirement."""

from __future__ import annotations

from typing import Literal

from pydantic import AwareDatetime, Field

from api.phases import Phase
from api.schemas.base import View
from api.schemas.bill import BillView, bill_view
from api.schemas.deployments import DeploymentView
from api.schemas.planning import PlanningView, planned_by_default
from api.schemas.plans import PlanView, plan_view
from api.schemas.query import QueryRequest
from api.schemas.schedule import DisplacedView
from pipelines.infrastructure import Infrastructure
from pipelines.slo import Slo
from planner.result import PlanningResult, Progress, Shortfall

Outcome = Literal["feasible", "infeasible", "exhausted", "cancelled"]
"""How planning ended."""


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
    phase: Phase
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


def progress_view(progress: Progress, slo: Slo, infrastructure: Infrastructure) -> ProgressView:
    """Give how far planning is."""
    best = progress.best
    return ProgressView(
        phase=progress.phase.value,
        measured=progress.measured,
        failed=progress.failed,
        inputs=progress.inputs,
        spent_s=progress.spent_s,
        saved_s=progress.bill.cache.seconds,
        profiling_left_s=progress.profiling_left_s,
        elapsed_s=progress.elapsed_s,
        time_left_s=progress.time_left_s,
        plans=progress.plans,
        best=None if best is None else plan_view(best, slo, infrastructure),
        bill=bill_view(progress.bill),
    )


def finished_view(
    result: PlanningResult, slo: Slo, infrastructure: Infrastructure
) -> ProgressView:
    """Give where planning ended."""
    best = result.plans[0] if result.plans else None
    return ProgressView(
        phase="finished",
        measured=result.measured,
        failed=result.failed,
        inputs=result.inputs,
        spent_s=result.spent_s,
        saved_s=result.saved_s,
        plans=len(result.plans),
        best=None if best is None else plan_view(best, slo, infrastructure),
        bill=bill_view(result.bill),
    )


def shortfall_view(
    shortfall: Shortfall, slo: Slo, infrastructure: Infrastructure
) -> ShortfallView:
    """Give why there is no plan."""
    closest = shortfall.closest
    return ShortfallView(
        binding=list(shortfall.binding),
        closest=None if closest is None else plan_view(closest, slo, infrastructure),
        sentence=shortfall.sentence,
        relaxations=dict(shortfall.relaxations),
        sure_relaxations=dict(shortfall.sure_relaxations),
        evidence=shortfall.evidence,
    )
