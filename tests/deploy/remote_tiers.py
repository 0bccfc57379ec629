"""Plans and instances with a remote tier, for the pipelines of `calling_pipelines`."""

from __future__ import annotations

from collections.abc import Mapping

from circinus.deploy.runtime.instances import (
    DesiredDeployment,
    InstanceKey,
    InstanceSpec,
    instances_of,
)
from circinus.pipelines.model.configuration import ConfigurationSpace
from circinus.pipelines.model.endpoints import CallPrice, Endpoint, RateLimits
from circinus.pipelines.model.infrastructure import Infrastructure, Link
from circinus.pipelines.model.plan import Deployment, Plan
from circinus.pipelines.model.slo import Estimate
from circinus.pipelines.model.tiers import Tier
from circinus.pipelines.registry import load_pipeline
from tests.deploy.calling_pipelines import MODULE

PRICE = CallPrice(input_usd_per_million=1.0, output_usd_per_million=4.0)


def hosted(**limits: RateLimits) -> Infrastructure:
    """One machine tier, and one with two endpoints; their limits by name."""
    endpoints = tuple(
        Endpoint(name=name, price=PRICE, limits=limits.get(name, RateLimits()), timeout_s=5.0)
        for name in ("reader", "checker")
    )
    return Infrastructure(
        name="hosted",
        tiers=(Tier(name="edge", machines=2), Tier(name="hosted", endpoints=endpoints)),
        links=(Link(between=("edge", "hosted"), bandwidth_bytes_per_s=1e9, delay_s=0.0),),
    )


def wanted(
    name: str, *calling: str, model: str = "reader", deadline_s: float | None = None
) -> DesiredDeployment:
    """A plan with operators of these names on the remote tier, and all others on a machine."""
    reference = f"{MODULE}:{name}"
    graph = load_pipeline(reference, allow_import=True).graph
    deployment = Deployment(
        placement={o.name: "hosted" if o.name in calling else "edge" for o in graph.operators},
        allocation={o.name: 1.0 for o in graph.operators},
        replicas={o.name: 1 for o in graph.operators},
        remote=frozenset({"hosted"}) if calling else frozenset(),
    )
    told = Estimate(value=1.0, low=1.0, high=1.0, confidence=0.95, inputs=1)
    plan = Plan(
        pipeline=graph.name,
        configuration=ConfigurationSpace(graph).parse({"read": {"model": model}}),
        deployment=deployment,
        demand=deployment.demand(graph),
        accuracy=told,
        latency_s=told,
        cost_usd_per_hour=0.0,
        tier_service_s={"hosted": 0.03, "edge": 0.002},
    )
    return DesiredDeployment(
        pipeline_reference=reference, plan=plan, sample="tin", deadline_s=deadline_s
    )


def instances(
    desired: DesiredDeployment, infrastructure: Infrastructure
) -> Mapping[InstanceKey, InstanceSpec]:
    """The instances of a plan."""
    graph = load_pipeline(desired.pipeline_reference, allow_import=True).graph
    return instances_of("q", desired, graph, infrastructure)
