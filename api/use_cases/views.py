"""Stored records and values from below, as the service shows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from circinus.api.phases import QueryPhase
from circinus.api.schemas.planning import planning_view
from circinus.api.schemas.plans import PlanView, plan_view
from circinus.api.schemas.progress import (
    ProgressView,
    QueryView,
    ReplannedView,
    SearchView,
    finished_view,
    progress_view,
    shortfall_view,
)
from circinus.api.schemas.schedule import (
    AssignmentView,
    DisplacedView,
    ScheduleView,
    TierUse,
    WaitingView,
)
from circinus.api.schemas.service import DeploymentView, InstanceView, ObservedView
from circinus.api.store.records import REPLANNED, DisplacedRecord, StoredPlan, StoredQuery
from circinus.api.use_cases.scheduling import Assessment
from circinus.deploy.runtime.monitor import Observed
from circinus.deploy.runtime.orchestrator import DeploymentStatus
from circinus.pipelines.infrastructure import Infrastructure, Tier
from circinus.scheduler.problem import Schedule
from circinus.scheduler.rolling.preemption import Preemption


def time_of(seconds: float) -> datetime:
    """Give seconds since the epoch as a time, UTC."""
    return datetime.fromtimestamp(seconds, UTC)


def stored_plan_view(
    stored: StoredPlan, owner: StoredQuery, infrastructure: Infrastructure
) -> PlanView:
    """Give a plan as the owner of its query sees it."""
    return plan_view(stored.plan, owner.query.slo, infrastructure)


def query_view(
    record: StoredQuery,
    infrastructure: Infrastructure,
    schedule: Schedule,
    displaced: Sequence[DisplacedRecord] = (),
) -> QueryView:
    """Give a query.

    Args:
        record: As stored.
        infrastructure: Planned for.
        schedule: In force: tells which plan was chosen, or why the query waits.
        displaced: Where it had to make way, or others for it.
    """
    slo, result = record.query.slo, record.planned
    missed = None if result is None else result.shortfall
    chosen = next((a for a in schedule.assignments if a.query_id == record.id), None)
    waits = record.phase is QueryPhase.WAITING
    why = schedule.waiting.get(record.id) if waits else None
    return QueryView.of(
        record,
        submitted_at=time_of(record.history[0].at),
        updated_at=time_of(record.updated_at),
        planning=planning_view(record.query.planning),
        progress=(
            _progress(record, infrastructure)
            if result is None
            else finished_view(result, slo, infrastructure)
        ),
        outcome=None if result is None else result.outcome.value,
        stopped_because=None if result is None else result.stopped_because,
        shortfall=None if missed is None else shortfall_view(missed, slo, infrastructure),
        plan_id=None if chosen is None else chosen.plan_id,
        message=why or record.message or None,
        replanned=[
            ReplannedView(at=time_of(change.at), why=change.message.removeprefix(REPLANNED))
            for change in reversed(record.replans)
        ],
        search=_search(record, infrastructure),
        displaced=[displaced_view(entry) for entry in displaced],
    )


def _progress(record: StoredQuery, infrastructure: Infrastructure) -> ProgressView | None:
    if record.latest is None:
        return None
    return progress_view(record.latest, record.query.slo, infrastructure)


def _search(record: StoredQuery, infrastructure: Infrastructure) -> SearchView | None:
    search = record.search
    if search is None:
        return None
    return SearchView.of(
        search,
        since=time_of(search.at),
        progress=None if record.searching is None else _progress(record, infrastructure),
        ended_at=None if search.ended_at is None else time_of(search.ended_at),
    )


def deployment_view(
    record: StoredQuery, status: DeploymentStatus | None, infrastructure: Infrastructure
) -> DeploymentView:
    """Give the deployment of a query; the phase `none` says that it has none."""
    if status is None:
        return DeploymentView(
            query_id=record.id, phase="none", message=record.message or f"query is {record.phase}"
        )
    instances = [
        InstanceView(
            tier=each.spec.tier.name,
            operators=list(each.spec.names),
            pid=each.running.pid if each.running else None,
            address=each.running.address if each.running else "",
            share=each.spec.share,
            enforcement=each.running.enforcement.value if each.running else "",
            emulated=infrastructure.tier(each.spec.tier.name).emulated,
        )
        for each in status.instances
    ]
    return DeploymentView.of(
        status,
        query_id=record.id,
        phase=status.phase.value,
        message=status.reason,
        instances=instances,
        observed=_observed_view(status.observed),
    )


def _observed_view(observed: Observed | None) -> ObservedView:
    if observed is None:
        return ObservedView()
    return ObservedView.of(
        observed,
        mean_s=observed.mean,
        p50_s=observed.p50,
        p90_s=observed.p90,
        p99_s=observed.p99,
    )


def displaced_view(record: DisplacedRecord) -> DisplacedView:
    """Give a displacement that happened."""
    by = () if record.by is None else (record.by,)
    found = Preemption(query_id=record.query_id, by=by, moved=record.moved)
    return DisplacedView.of(record, sentence=found.words, at=time_of(record.at))


def schedule_view(
    schedule: Schedule,
    infrastructure: Infrastructure,
    assessment: Assessment,
    since: Mapping[str, float] | None = None,
) -> ScheduleView:
    """Give a schedule.

    Args:
        schedule: To show.
        infrastructure: With the machines it is made for.
        assessment: How good it is; who is displaced by it.
        since: Query -> when it was served or put out last, or came; None: not known.
    """
    times = {query: time_of(at) for query, at in (since or {}).items()}
    return ScheduleView.of(
        assessment,
        assignments=[
            AssignmentView.of(a, since=times.get(a.query_id)) for a in schedule.assignments
        ],
        waiting=[
            WaitingView(query_id=query_id, reason=reason, since=times.get(query_id))
            for query_id, reason in schedule.waiting.items()
        ],
        tiers=[_tier_use(tier, schedule) for tier in infrastructure.tiers],
        displaced=[
            DisplacedView.of(found, by=by, sentence=found.words)
            for found in assessment.displaced
            for by in found.by or (None,)
        ],
    )


def _tier_use(tier: Tier, schedule: Schedule) -> TierUse:
    shares = [
        share
        for assignment in schedule.assignments
        for name, _, share in assignment.machines
        if name == tier.name
    ]
    return TierUse.of(
        tier,
        tier=tier.name,
        used=round(sum(shares), 6),
        utilisation=schedule.utilisation.get(tier.name, 0.0),
    )
