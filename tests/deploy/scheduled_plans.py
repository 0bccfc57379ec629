"""Scheduled plans for tests: random ones of any shape, and small ones by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hypothesis import strategies as st

from circinus.deploy.kubernetes.manifests import ScheduledPlan
from circinus.pipelines.model.configuration import ConfigurationSpace
from circinus.pipelines.model.graph import PipelineGraph
from circinus.pipelines.model.infrastructure import Infrastructure, Link
from circinus.pipelines.model.operators import Knob, OperatorSpec, Scaling
from circinus.pipelines.model.plan import Deployment, Plan
from circinus.pipelines.model.slo import Estimate
from circinus.pipelines.model.tiers import Tier
from circinus.scheduler.problem import Slice

TIERS = (
    Tier(name="device", machines=1, dedicated=True),
    Tier(name="edge", machines=8),
    Tier(name="cloud", machines=8),
)
INFRASTRUCTURE = Infrastructure(
    name="test",
    tiers=TIERS,
    links=tuple(
        Link(between=pair, bandwidth_bytes_per_s=1e6)
        for pair in (("device", "edge"), ("edge", "cloud"))
    ),
)
NAMES = st.from_regex(r"[A-Za-z][A-Za-z0-9_.-]{0,62}", fullmatch=True)
_ESTIMATE = Estimate(value=0.5, low=0.4, high=0.6, confidence=0.95, inputs=20)


def plan_of(
    graph: PipelineGraph,
    placement: Sequence[str],
    shares: Mapping[str, float],
    replicas: Mapping[str, int],
    configuration: int = 0,
) -> Plan:
    placed = {op.name: tier for op, tier in zip(graph.operators, placement, strict=True)}
    deployment = Deployment(
        placement=placed,
        allocation={o: shares.get(tier, 1.0) for o, tier in placed.items()},
        replicas={o: replicas.get(tier, 1) for o, tier in placed.items()},
    )
    return Plan(
        pipeline=graph.name,
        configuration=ConfigurationSpace(graph).configuration(configuration),
        deployment=deployment,
        demand=deployment.demand(graph),
        accuracy=_ESTIMATE,
        latency_s=_ESTIMATE,
        cost_usd_per_hour=0.1,
        tier_service_s={},
    )


def chain(name: str, length: int) -> PipelineGraph:
    operators = tuple(
        OperatorSpec(
            name=f"op{i}",
            after=(f"op{i - 1}",) if i else (),
            knobs=(Knob(name="k", values=(1, 2.5, "$HOME, ${x} 'é'")),),
            scaling=Scaling.PROPORTIONAL,
        )
        for i in range(length)
    )
    return PipelineGraph(name=name, operators=operators)


def scheduled_chain(
    query_id: str,
    placement: Sequence[str],
    *,
    name: str = "digits",
    shares: Mapping[str, float] | None = None,
    replicas: Mapping[str, int] | None = None,
    machines: Mapping[str, Sequence[int]] | None = None,
    configuration: int = 0,
) -> ScheduledPlan:
    """A chain with one operator per entry of `placement`; machines by tier, 0 where not given."""
    graph = chain(name, len(placement))
    plan = plan_of(graph, placement, shares or {}, replicas or {}, configuration)
    left = {tier: list(found) for tier, found in (machines or {}).items()}
    slices = tuple(
        Slice(tier, left[tier].pop(0) if left.get(tier) else 0, share)
        for tier, share in plan.demand
    )
    return ScheduledPlan(
        query_id=query_id,
        pipeline_reference=name,
        plan=plan,
        graph=graph,
        infrastructure=INFRASTRUCTURE,
        slices=slices,
    )


@st.composite
def scheduled_plans(draw: st.DrawFn) -> ScheduledPlan:
    """A plan of any name and shape whose slices fit their machines."""
    length = draw(st.integers(1, 6))
    tiers = [tier.name for tier in TIERS]
    placement = draw(st.lists(st.sampled_from(tiers), min_size=length, max_size=length))
    shares = {tier: draw(st.integers(1, 20)) * 0.05 for tier in tiers}
    # A share of more than half a machine has a machine for each replica: at most eight.
    replicas = {"edge": draw(st.integers(1, 8)), "cloud": draw(st.integers(1, 8))}
    machines = {
        tier: draw(st.permutations(range(8)))[: replicas[tier]] for tier in ("edge", "cloud")
    }
    return scheduled_chain(
        draw(NAMES),
        placement,
        name=draw(NAMES),
        shares={tier: round(share, 9) for tier, share in shares.items()},
        replicas=replicas,
        machines=machines,
        configuration=draw(st.integers(0, 3**length - 1)),
    )
