"""Stored records and values from below, as the service shows them."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

from circinus.api.phases import QueryPhase
from circinus.api.schemas.deployments import (
    DeploymentView,
    InstanceView,
    ObjectivesView,
    ObjectiveView,
    ObservedView,
)
from circinus.api.schemas.planning import planning_view
from circinus.api.schemas.plans import ServedBillView, served_bill_view
from circinus.api.schemas.pools import PoolView
from circinus.api.schemas.progress import (
    QueryView,
    ReplannedView,
    SearchView,
    progress_view,
    shortfall_view,
)
from circinus.api.schemas.schedule import (
    AssignmentView,
    DisplacedView,
    EndpointUse,
    MachineShare,
    RentedMachines,
    RentView,
    ScheduleView,
    TierUse,
    WaitingView,
)
from circinus.api.store.records import REPLANNED, DisplacedRecord, InForce, NotFound, StoredQuery
from circinus.api.use_cases.capacity import endpoint_limits
from circinus.api.use_cases.objectives import ObservedObjectives
from circinus.api.use_cases.parts import ServiceParts
from circinus.api.use_cases.scheduling import machine_types
from circinus.deploy.runtime.deployment import DeploymentStatus
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.tiers import Tier
from circinus.scheduler.problem import Assignment, Schedule, Slice
from circinus.scheduler.rolling.ageing import Preemption
from circinus.scheduler.rolling.assessment import Assessment, Rent


def query_view(
    record: StoredQuery,
    infrastructure: Infrastructure,
    schedule: Schedule,
    displaced: Sequence[DisplacedRecord] = (),
) -> QueryView:
    """Return a query, planned for an infrastructure.

    The schedule in force has the chosen plan, or why the query waits; `displaced` are its
    displacements, by it or of it.
    """
    slo, result = record.query.slo, record.planned
    missed = None if result is None else result.shortfall
    chosen = next((a for a in schedule.assignments if a.query_id == record.id), None)
    why = schedule.waiting.get(record.id) if record.phase is QueryPhase.WAITING else None
    latest = record.latest if result is None or record.searching is not None else None
    progress = None if latest is None else progress_view(latest, slo, infrastructure)
    return QueryView.of(
        record,
        submitted_at=record.history[0].at,
        planning=planning_view(record.query.planning),
        progress=progress if result is None else progress_view(result, slo, infrastructure),
        outcome=None if result is None else result.outcome.value,
        stopped_because=None if result is None else result.stopped_because,
        shortfall=shortfall_view(missed, slo, infrastructure),
        plan_id=None if chosen is None else chosen.plan_id,
        message=why or record.message or None,
        replanned=[
            ReplannedView.of(change, why=change.message.removeprefix(REPLANNED))
            for change in reversed(record.replans)
        ],
        search=None
        if record.search is None
        else SearchView.of(
            record.search,
            since=record.search.at,
            progress=None if record.searching is None else progress,
        ),
        displaced=[displaced_view(entry) for entry in displaced],
    )


def objectives_view(query_id: str, observed: ObservedObjectives) -> ObjectivesView:
    """Return how a query fares by its requests."""
    return ObjectivesView.of(
        observed.report.spans[0],
        query_id=query_id,
        plan_id=observed.plan_id,
        state=observed.state.value,
        sentence=observed.sentence,
        objectives=[
            ObjectiveView.of(
                each.observed,
                name=each.name,
                bound=each.bound,
                state=each.state.value,
                requests=0 if each.observed is None else each.observed.inputs,
                span_s=each.span_s,
                why=each.why or None,
            )
            for each in observed.objectives
        ],
        overload=observed.overload or None,
        rate_per_s=observed.report.arrivals_per_s,
        planned_per_s=observed.planned_per_s,
        waiting=observed.waiting,
        replicas={tier: queue.workers for tier, queue in observed.report.queues.items()},
        scaled_tier=observed.scaled_tier,
    )


def deployment_view(
    record: StoredQuery,
    status: DeploymentStatus | None,
    infrastructure: Infrastructure,
    observed: ObservedObjectives | None = None,
) -> DeploymentView:
    """Return the deployment of a query; with the phase `none` if it has none.

    `observed`: how it fares by its requests; None: before the first look.
    """
    if status is None:
        return DeploymentView(
            query_id=record.id, phase="none", message=record.message or f"query is {record.phase}"
        )
    instances = [
        InstanceView.of(
            each,
            tier=each.spec.tier.name,
            machine_type=each.spec.machine_type,
            operators=each.spec.names,
            pid=each.running.pid if each.running else None,
            address=each.running.address if each.running else "",
            share=each.spec.share,
            enforcement=each.running.enforcement.value if each.running else "",
            emulated=each.spec.tier.emulated,
            calls_at_once=each.spec.calls_at_once,
        )
        for each in status.instances
    ]
    report = status.report
    latency = {} if report is None else report.latency()
    return DeploymentView.of(
        status,
        query_id=record.id,
        phase=status.phase.value,
        message=status.reason,
        instances=instances,
        observed=ObservedView()
        if report is None
        else ObservedView.of(
            count=report.answered,
            failed=report.failed,
            window=len(report.answers),
            **{f"{each.value}_s": value for each, value in latency.items()},
        ),
        lately=() if report is None else report.spans,
        objectives=None if observed is None else objectives_view(record.id, observed),
    )


def displaced_view(record: DisplacedRecord) -> DisplacedView:
    """Return the view of a recorded displacement."""
    by = () if record.by is None else (record.by,)
    preemption = Preemption(query_id=record.query_id, by=by, moved=record.moved)
    return DisplacedView.of(record, sentence=preemption.words)


def schedule_view(
    schedule: Schedule,
    infrastructure: Infrastructure,
    assessment: Assessment,
    in_force: InForce | None = None,
) -> ScheduleView:
    """Return a schedule, made for the machines of an infrastructure.

    `in_force` has when queries were served or displaced last, or submitted, and the extra
    replicas; None: it is a preview.
    """
    known = in_force or InForce()
    times = known.since
    return ScheduleView.of(
        assessment,
        assignments=[
            _assignment_view(
                a, infrastructure, known, assessment.calls_usd_per_hour.get(a.query_id, 0.0)
            )
            for a in schedule.assignments
        ],
        waiting=[
            WaitingView.of(query_id=query_id, reason=reason, since=times.get(query_id))
            for query_id, reason in schedule.waiting.items()
        ],
        tiers=[_tier_use(tier, schedule) for tier in infrastructure.tiers if not tier.remote],
        endpoints=[
            EndpointUse.of(limit, used=schedule.utilisation.get(limit.tier, 0.0))
            for limit in endpoint_limits(infrastructure)
        ],
        displaced=[
            DisplacedView.of(preemption, by=by, sentence=preemption.words)
            for preemption in assessment.displaced
            for by in preemption.by or (None,)
        ],
        rent=None if assessment.rent is None else _rent_view(assessment.rent, infrastructure),
    )


def _rent_view(rent: Rent, infrastructure: Infrastructure) -> RentView:
    by_kind: dict[tuple[str, str | None], list[int]] = {}
    for tier, machine in rent.machines:
        kind = infrastructure.machine_type(tier, machine)
        by_kind.setdefault((tier, kind), []).append(machine)
    tiers = infrastructure.present(tier for tier, _ in by_kind)
    least = rent.least.usd_per_hour
    return RentView.of(
        rent,
        machines=[
            RentedMachines(
                tier=tier,
                machine_type=kind,
                machines=machines,
                price_usd_per_hour=tiers[tier].typed(kind).price_usd_per_hour,
            )
            for (tier, kind), machines in by_kind.items()
            if tier in tiers
        ],
        most_usd_per_hour=rent.most_usd_per_hour if isfinite(rent.most_usd_per_hour) else None,
        least_usd_per_hour=least if isfinite(least) else None,
        proven=rent.least.proven,
    )


def _assignment_view(
    assignment: Assignment,
    infrastructure: Infrastructure,
    in_force: InForce,
    calls_usd_per_hour: float = 0.0,
) -> AssignmentView:
    types = machine_types(assignment.machines, infrastructure)
    tiers = infrastructure.present(at.tier for at in assignment.machines)
    return AssignmentView.of(
        assignment,
        machines=_machine_shares(assignment.machines, infrastructure),
        extras=_machine_shares(in_force.extras.get(assignment.query_id, ()), infrastructure),
        since=in_force.since.get(assignment.query_id),
        pool=in_force.pools.get(assignment.query_id),
        cost_usd_per_hour=calls_usd_per_hour
        + sum(
            at.share * tiers[at.tier].typed(name).price_usd_per_hour
            for at, name in zip(assignment.machines, types, strict=True)
            if at.tier in tiers
        ),
    )


def pool_view(record: StoredQuery, in_force: InForce, infrastructure: Infrastructure) -> PoolView:
    """Return the pool of a query, on an infrastructure with the machines of the schedule in force.

    NotFound if it has none.
    """
    if record.pool is None:
        raise NotFound("pool", record.id)
    at = in_force.schedule.by_query.get(record.id)
    assignment = None if at is None else _assignment_view(at, infrastructure, in_force)
    missing = in_force.lacking.get(record.id)
    placed = in_force.pools.get(record.id) == record.pool
    return PoolView(
        query_id=record.id,
        slices={tier: dict(kinds) for tier, kinds in record.pool.items()},
        state="placed" if placed else "pending" if missing is None else "lacking",
        missing=None if placed else missing,
        follow=record.pool_follows,
        machines=[] if assignment is None else assignment.machines,
        cost_usd_per_hour=None if assignment is None else assignment.cost_usd_per_hour,
    )


def _machine_shares(slices: Sequence[Slice], infrastructure: Infrastructure) -> list[MachineShare]:
    types = machine_types(slices, infrastructure)
    return [MachineShare.of(at, machine_type=kind) for at, kind in zip(slices, types, strict=True)]


def _tier_use(tier: Tier, schedule: Schedule) -> TierUse:
    slices = (piece for assigned in schedule.assignments for piece in assigned.machines)
    return TierUse.of(
        tier,
        tier=tier.name,
        used=round(sum(piece.share for piece in slices if piece.tier == tier.name), 6),
        utilisation=schedule.utilisation.get(tier.name, 0.0),
    )


def served_bills(parts: ServiceParts, query_id: str) -> list[ServedBillView]:
    """Return what the requests to each plan of a query used of endpoints; empty if none called."""
    if not parts.infrastructure.endpoints:  # nothing can be called: one look less at the store
        return []
    bills = parts.store.bills.of(query_id)
    if not bills:
        return []
    plans = {stored.id: stored.plan for stored in parts.store.plans(query_id)}
    return [served_bill_view(bill, plans.get(bill.plan_id)) for bill in bills]
