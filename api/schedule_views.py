"""Schedules as the service shows them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from api.schemas import (
    AssignmentView,
    DisplacedView,
    MachineShare,
    ScheduleView,
    TierUse,
    WaitingView,
)
from api.services.preview import Assessment
from api.store.schedule_store import DisplacedRecord
from pipelines.infrastructure import Infrastructure, Tier
from scheduler.displacement import Displacement
from scheduler.problem import Assignment, Schedule


def time_of(seconds: float) -> datetime:
    """Give seconds since the epoch as a time, UTC."""
    return datetime.fromtimestamp(seconds, UTC)


def displaced_view(record: DisplacedRecord) -> DisplacedView:
    """Give a displacement that happened."""
    by = () if record.by is None else (record.by,)
    found = Displacement(query_id=record.query_id, by=by, moved=record.moved)
    return _displaced(found, record.by).model_copy(update={"at": time_of(record.at)})


def _displaced(found: Displacement, by: str | None) -> DisplacedView:
    return DisplacedView(query_id=found.query_id, by=by, moved=found.moved, sentence=found.words)


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
    return ScheduleView(
        assignments=[_assignment(a, times.get(a.query_id)) for a in schedule.assignments],
        waiting=[
            WaitingView(query_id=query_id, reason=reason, since=times.get(query_id))
            for query_id, reason in schedule.waiting.items()
        ],
        tiers=[_tier_use(tier, schedule) for tier in infrastructure.tiers],
        goodput=assessment.goodput,
        bound=assessment.bound,
        gap=assessment.gap,
        displaced=[
            _displaced(found, by) for found in assessment.displaced for by in found.by or (None,)
        ],
    )


def _assignment(assignment: Assignment, since: datetime | None) -> AssignmentView:
    return AssignmentView(
        query_id=assignment.query_id,
        plan_id=assignment.plan_id,
        machines=[
            MachineShare(tier=tier, machine=machine, share=share)
            for tier, machine, share in assignment.machines
        ],
        since=since,
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
