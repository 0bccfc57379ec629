"""Stored records and values from below, as the service shows them."""

from __future__ import annotations

from datetime import UTC, datetime

from api.documents import from_document
from api.schemas import (
    AssignmentView,
    DeploymentView,
    InstanceView,
    MachineShare,
    ObservedView,
    PlanView,
    ProgressView,
    QueryRequest,
    QueryView,
    ScheduleView,
    ShortfallView,
    TierUse,
    WaitingView,
    finished_view,
    plan_view,
    progress_view,
    shortfall_view,
    to_query,
)
from api.store.records import QueryRecord, StoredPlan
from deploy.monitor import Observed
from deploy.orchestrator import DeploymentStatus
from deploy.supervisor import InstanceStatus
from pipelines.infrastructure import Infrastructure, Tier
from pipelines.plan import Plan
from pipelines.slo import Slo
from planner.result import PlanningResult, Progress
from scheduler.problem import Schedule


def request_of(record: QueryRecord) -> QueryRequest:
    """Give what was submitted."""
    return QueryRequest.model_validate(dict(record.spec))


def stored_plan_view(
    stored: StoredPlan, owner: QueryRecord, infrastructure: Infrastructure
) -> PlanView:
    """Give a plan as the owner of its query sees it."""
    slo = to_query(request_of(owner)).slo
    return plan_view(from_document(Plan, stored.plan), slo, infrastructure)


def query_view(
    record: QueryRecord, infrastructure: Infrastructure, schedule: Schedule | None
) -> QueryView:
    """Give a query; the schedule in force tells which plan was chosen."""
    request = request_of(record)
    slo = to_query(request).slo
    result = None if record.result is None else from_document(PlanningResult, record.result)
    chosen = None if schedule is None else schedule.by_query.get(record.id)
    return QueryView(
        id=record.id,
        request=request,
        phase=record.phase,
        submitted_at=_time(record.history[0].at),
        updated_at=_time(record.history[-1].at),
        progress=_progress(record, result, slo, infrastructure),
        outcome=None if result is None else result.outcome.value,
        stopped_because=None if result is None else result.stopped_because,
        shortfall=_shortfall(result, slo, infrastructure),
        plan_id=None if chosen is None else chosen.plan_id,
        message=record.message or None,
        idempotency_key=record.idempotency_key,
    )


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _progress(
    record: QueryRecord, result: PlanningResult | None, slo: Slo, infrastructure: Infrastructure
) -> ProgressView | None:
    if result is not None:
        return finished_view(result, slo, infrastructure)
    if record.progress is None:
        return None
    return progress_view(from_document(Progress, record.progress), slo, infrastructure)


def _shortfall(
    result: PlanningResult | None, slo: Slo, infrastructure: Infrastructure
) -> ShortfallView | None:
    if result is None or result.shortfall is None:
        return None
    return shortfall_view(result.shortfall, slo, infrastructure)


def schedule_view(schedule: Schedule | None, infrastructure: Infrastructure) -> ScheduleView:
    """Give the schedule in force; an empty one before the first."""
    if schedule is None:
        schedule = Schedule(assignments=(), waiting={}, utilisation={})
    return ScheduleView(
        assignments=[
            AssignmentView(
                query_id=assignment.query_id,
                plan_id=assignment.plan_id,
                machines=[
                    MachineShare(tier=tier, machine=machine, share=share)
                    for tier, machine, share in assignment.machines
                ],
            )
            for assignment in schedule.assignments
        ],
        waiting=[
            WaitingView(query_id=query_id, reason=reason)
            for query_id, reason in schedule.waiting.items()
        ],
        tiers=[_tier_use(tier, schedule) for tier in infrastructure.tiers],
    )


def _tier_use(tier: Tier, schedule: Schedule) -> TierUse:
    shares = [
        share
        for assignment in schedule.assignments
        for name, _, share in assignment.machines
        if name == tier.name
    ]
    return TierUse(
        tier=tier.name,
        machines=tier.machines,
        used=round(sum(shares), 6),
        utilisation=schedule.utilisation.get(tier.name, 0.0),
        dedicated=tier.dedicated,
        emulated=tier.emulated,
    )


def deployment_view(
    record: QueryRecord, status: DeploymentStatus | None, infrastructure: Infrastructure
) -> DeploymentView:
    """Give the deployment of a query; the phase `none` says that it has none."""
    if status is None:
        return DeploymentView(
            query_id=record.id, phase="none", message=record.message or f"query is {record.phase}"
        )
    return DeploymentView(
        query_id=record.id,
        plan_id=status.plan_id,
        phase=status.phase.value,
        message=status.reason,
        instances=[_instance_view(i, infrastructure) for i in status.instances],
        observed=_observed_view(status.observed),
    )


def _instance_view(instance: InstanceStatus, infrastructure: Infrastructure) -> InstanceView:
    return InstanceView(
        tier=instance.tier,
        operators=list(instance.operators),
        pid=instance.pid,
        address=instance.address or "",
        share=instance.share,
        enforcement="" if instance.enforcement is None else instance.enforcement.value,
        emulated=infrastructure.tier(instance.tier).emulated,
    )


def _observed_view(observed: Observed | None) -> ObservedView:
    if observed is None:
        return ObservedView()
    return ObservedView(
        count=observed.count,
        failed=observed.failed,
        mean_s=observed.mean,
        p50_s=observed.p50,
        p90_s=observed.p90,
        p99_s=observed.p99,
        window=observed.window,
    )
