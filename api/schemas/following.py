"""Messages between a service and its dispatchers: JSON between programs of one release.

A reader ignores unknown fields: during an upgrade the two ends may be of two versions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from circinus.api.schemas.base import View
from circinus.api.schemas.plans import PlanView, to_plan, unjudged_plan_view
from circinus.deploy.runtime.following import ServedDeployment
from circinus.deploy.runtime.instances import DesiredDeployment, ExtraReplica
from circinus.pipelines import checks
from circinus.pipelines.model.graph import PipelineGraph

FOLLOWED = "/v1/internal/deployments"
"""Path of a dispatcher's view; `since` is its last state, `applied` the state in force."""
REPORTED = "/v1/internal/figures"
"""Path of its reports on requests."""


class ReplicaView(View):
    """A copy of a plan's operators on a tier."""

    tier: str
    machine_type: str | None = None
    slice: str | None = None


class ServedView(View):
    """A plan that serves, and its instances."""

    pipeline: str = Field(description="Reference, see `pipelines.registry`.")
    plan: PlanView
    deadline_s: float | None = None
    machine_types: list[str | None] = Field(default_factory=list)
    extras: list[ReplicaView] = Field(default_factory=list)
    pool: list[ReplicaView] = Field(default_factory=list)
    addresses: dict[str, str] = Field(default_factory=dict)
    """Of the instances that are up, by their keys: of use on the computer of the service alone."""


class FollowedView(View):
    """All that serves."""

    version: str = Field(description="Names this state of this serving process.")
    deployments: dict[str, ServedView] = Field(description="By query.")
    awaited: list[str] = Field(default_factory=list)
    """Queries that should be served and are not yet: a dispatcher that serves one continues."""
    emulated: dict[str, Any] = Field(default_factory=dict)
    """Document of the infrastructure whose emulated links are waited for."""


def served_view(served: ServedDeployment) -> ServedView:
    """Return the view of a served plan for dispatchers."""
    desired = served.desired
    return ServedView.of(
        desired,
        pipeline=desired.pipeline_reference,
        plan=unjudged_plan_view(desired.plan),
        addresses=served.addresses,
    )


def to_desired(view: ServedView, graph: PipelineGraph) -> DesiredDeployment:
    """Return the plan to follow; InvalidInput if it does not fit the pipeline's graph.

    A plan that reads otherwise than it was written is of another version of its pipeline.
    """
    plan = to_plan(view.plan, graph)
    checks.require(plan.id == view.plan.id, "plan", f"must be plan {view.plan.id}", plan.id)
    return DesiredDeployment(
        pipeline_reference=view.pipeline,
        plan=plan,
        deadline_s=view.deadline_s,
        machine_types=tuple(view.machine_types),
        extras=_replicas(view.extras),
        pool=_replicas(view.pool),
    )


def addresses_in(deployments: Mapping[str, ServedView]) -> dict[str, str]:
    """Return where all instances listen, by their keys."""
    return {key: at for view in deployments.values() for key, at in view.addresses.items()}


def _replicas(views: list[ReplicaView]) -> tuple[ExtraReplica, ...]:
    return tuple(ExtraReplica(view.tier, view.machine_type, view.slice) for view in views)
