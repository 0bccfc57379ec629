"""Stored records and values from below, as the service shows them."""

from __future__ import annotations

from collections.abc import Sequence

from api.documents import from_document
from api.phases import Phase
from api.schedule_views import displaced_view, time_of
from api.schemas import (
    DeploymentView,
    InstanceView,
    ObservedView,
    PlanView,
    ProgressView,
    QueryRequest,
    QueryView,
    ReplannedView,
    SearchView,
    ShortfallView,
    finished_view,
    plan_view,
    planning_view,
    progress_view,
    shortfall_view,
    to_query,
)
from api.store.records import REPLANNED, QueryRecord, StoredPlan
from api.store.schedule_store import DisplacedRecord
from deploy.monitor import Observed
from deploy.orchestrator import DeploymentStatus
from deploy.supervisor import InstanceStatus
from pipelines.infrastructure import Infrastructure
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
    record: QueryRecord,
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
    request = request_of(record)
    query = to_query(request)
    slo = query.slo
    result = None if record.result is None else from_document(PlanningResult, record.result)
    chosen = next((a for a in schedule.assignments if a.query_id == record.id), None)
    waits = record.phase is Phase.WAITING
    why = schedule.waiting.get(record.id) if waits else None
    return QueryView(
        id=record.id,
        request=request,
        phase=record.phase,
        submitted_at=time_of(record.history[0].at),
        updated_at=time_of(record.updated_at),
        planning=planning_view(query.planning),
        progress=_progress(record, result, slo, infrastructure),
        outcome=None if result is None else result.outcome.value,
        stopped_because=None if result is None else result.stopped_because,
        shortfall=_shortfall(result, slo, infrastructure),
        plan_id=None if chosen is None else chosen.plan_id,
        message=why or record.message or None,
        replanned=[
            ReplannedView(at=time_of(change.at), why=change.message.removeprefix(REPLANNED))
            for change in reversed(record.replans)
        ],
        search=_search(record, slo, infrastructure),
        displaced=[displaced_view(entry) for entry in displaced],
        idempotency_key=record.idempotency_key,
    )


def _progress(
    record: QueryRecord, result: PlanningResult | None, slo: Slo, infrastructure: Infrastructure
) -> ProgressView | None:
    if result is not None:
        return finished_view(result, slo, infrastructure)
    return _planning(record, slo, infrastructure)


def _planning(
    record: QueryRecord, slo: Slo, infrastructure: Infrastructure
) -> ProgressView | None:
    if record.progress is None:
        return None
    return progress_view(from_document(Progress, record.progress), slo, infrastructure)


def _search(record: QueryRecord, slo: Slo, infrastructure: Infrastructure) -> SearchView | None:
    search = record.search
    if search is None:
        return None
    return SearchView(
        since=time_of(search.at),
        why=search.why,
        progress=None if record.searching is None else _planning(record, slo, infrastructure),
        ended=search.ended,
        ended_at=None if search.ended_at is None else time_of(search.ended_at),
    )


def _shortfall(
    result: PlanningResult | None, slo: Slo, infrastructure: Infrastructure
) -> ShortfallView | None:
    if result is None or result.shortfall is None:
        return None
    return shortfall_view(result.shortfall, slo, infrastructure)


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
