"""What one of a deployment unit runs where Circinus runs it: a pipeline, on a tier of its own.

All of the pipeline's operators sit together in one worker. Its price and what it takes are the
unit's; a unit's number of workers is how many replicas there are in the place of a plan's demand.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from circinus.deploy.runtime.instances import DesiredDeployment, ExtraReplica
from circinus.pipelines import checks
from circinus.pipelines.model.configuration import ConfigurationSpace
from circinus.pipelines.model.graph import PipelineGraph
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.operators import KnobValue
from circinus.pipelines.model.payload import Payload
from circinus.pipelines.model.plan import Deployment, Plan
from circinus.pipelines.model.slo import Estimate
from circinus.pipelines.model.tiers import Tier
from circinus.scheduler.routing.units import DeploymentUnit

_UNKNOWN = 0.5  # confidence of what was not measured


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitWorkload:
    """A deployment unit that is run as workers."""

    unit: DeploymentUnit
    pipeline_reference: str  # see `pipelines.registry`
    # operator -> knob -> value; a knob with a single value may be left out
    knobs: Mapping[str, Mapping[str, KnobValue]] = field(default_factory=dict)
    share: float = 1.0  # of a machine, in (0, 1]
    speed: float = 1.0  # of this computer's, put on by waiting, in (0, 1]: for trials

    def __post_init__(self) -> None:
        checks.share(f"unit {self.unit.name}.share", self.share)
        checks.share(f"unit {self.unit.name}.speed", self.speed)

    @property
    def infrastructure(self) -> Infrastructure:
        """Return machines of the unit's kind, and nothing else."""
        tier = Tier(
            name=self.unit.name,
            price_usd_per_hour=self.unit.price_usd_per_hour / self.share,
            speed_factor=self.speed,
            emulated=self.speed < 1,
        )
        return Infrastructure(name=self.unit.name, tiers=(tier,))

    def plan(self, graph: PipelineGraph) -> Plan:
        """Return the plan that each of its workers runs; InvalidInput if its knobs do not fit."""
        names, tier = [operator.name for operator in graph.operators], self.unit.name
        deployment = Deployment(
            placement=dict.fromkeys(names, tier),
            allocation=dict.fromkeys(names, self.share),
            replicas=dict.fromkeys(names, 1),
        )
        latency_s = self.unit.latency_s
        return Plan(
            pipeline=graph.name,
            configuration=ConfigurationSpace(graph).parse(self.knobs),
            deployment=deployment,
            demand=deployment.demand(graph),
            accuracy=Estimate(value=0, low=0, high=1, confidence=_UNKNOWN, inputs=0),
            latency_s=Estimate(
                value=latency_s, low=0, high=latency_s, confidence=_UNKNOWN, inputs=0
            ),
            cost_usd_per_hour=self.unit.price_usd_per_hour,
            tier_service_s={tier: 1 / self.unit.most_per_s},
        )

    def desired(
        self, graph: PipelineGraph, workers: int, sample: Payload | None = None
    ) -> DesiredDeployment:
        """Return the deployment of so many workers, `>= 1`; errors as `plan`."""
        return DesiredDeployment(
            pipeline_reference=self.pipeline_reference,
            plan=self.plan(graph),
            sample=sample,
            pool=(ExtraReplica(self.unit.name),) * workers,
        )
