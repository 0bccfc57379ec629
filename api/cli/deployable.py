"""A plan as the service or a file shows it, back as what can be rendered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf

from circinus.api.schemas.faults import checked
from circinus.api.schemas.plans import EstimateView, PlanView
from circinus.api.schemas.schedule import MachineShare
from circinus.deploy.kubernetes.manifests import ScheduledPlan
from circinus.pipelines.configuration import ConfigurationSpace
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.graph import PipelineGraph
from circinus.pipelines.infrastructure import Infrastructure
from circinus.pipelines.plan import Deployment, Plan
from circinus.pipelines.slo import Estimate
from circinus.scheduler.problem import Slice


def plan_in(document: Mapping[str, object]) -> tuple[str, PlanView]:
    """Give query id and plan of a document that `circinus export` wrote, of a query or a plan.

    Raises:
        InvalidInput: If it is neither, or its query has no scheduled plan.
    """
    plans = document.get("plans")
    if not isinstance(plans, list):
        view = checked(PlanView, document)
        return str(document.get("query_id") or view.id), view
    views = [checked(PlanView, each) for each in plans]
    chosen = document.get("plan_id")
    for view in views:
        if view.id == chosen:
            return str(document.get("id") or view.id), view
    raise InvalidInput.of("plan_id", "must be among the plans of the query", chosen)


def scheduled_of(
    query_id: str,
    view: PlanView,
    machines: Sequence[MachineShare],
    graph: PipelineGraph,
    infrastructure: Infrastructure,
) -> ScheduledPlan:
    """Give what can be rendered.

    Args:
        query_id: Whose plan it is.
        view: The plan.
        machines: That the schedule gives it; none: it is not known.
        graph: Of its pipeline.
        infrastructure: That it was planned for.

    Raises:
        InvalidInput: If the plan does not fit its pipeline, the infrastructure or the machines.
    """
    deployment = Deployment(
        placement=view.placement, allocation=view.allocation, replicas=view.replicas
    )
    plan = Plan(
        pipeline=view.pipeline,
        configuration=ConfigurationSpace(graph).parse(view.configuration),
        deployment=deployment,
        demand=deployment.demand(graph),
        accuracy=_estimate(view.accuracy),
        latency_s=_estimate(view.latency_s),
        cost_usd_per_hour=view.cost_usd_per_hour,
        tier_service_s=view.tier_service_s,
    )
    return ScheduledPlan(
        query_id=query_id,
        pipeline_reference=view.pipeline,
        plan=plan,
        graph=graph,
        infrastructure=infrastructure,
        slices=tuple(Slice(each.tier, each.machine, each.share) for each in machines),
    )


def _estimate(view: EstimateView) -> Estimate:
    if view.value is None:
        raise InvalidInput.of("plan", "must have been measured", view.value)
    return Estimate(
        value=view.value,
        low=-inf if view.low is None else view.low,
        high=inf if view.high is None else view.high,
        confidence=view.confidence,
        inputs=view.inputs,
    )
