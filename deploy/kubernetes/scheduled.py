"""What is rendered: a plan with its scheduled machines, and how workers run there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from deploy.instances import DesiredDeployment, InstanceSpec
from deploy.kubernetes.quantities import quantity
from deploy.reconcile import instances_of
from pipelines import checks
from pipelines.errors import InvalidInput
from pipelines.graph import PipelineGraph
from pipelines.infrastructure import Infrastructure
from pipelines.plan import Plan
from scheduler.problem import Slice, parts_of


class Pinning(StrEnum):
    """How far a worker is bound to what the schedule says."""

    MACHINE = "machine"
    """To the node labelled as the scheduled machine; on a dedicated tier, to the tier."""
    TIER = "tier"
    """To any node of the tier."""


class DevicePolicy(StrEnum):
    """How a share of a machine's GPUs is asked for."""

    NONE = "none"
    """Not at all: workers use the CPU."""
    WHOLE = "whole"
    """`nvidia.com/gpu`, in whole numbers; a share that is no whole number of GPUs is refused."""
    MPS = "mps"
    """One client of `nvidia.com/gpu.shared`, limited to the share of the GPU's threads."""
    TIME_SLICED = "time-sliced"
    """As many time slices of `nvidia.com/gpu.shared` as fit into the share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineShape:
    """What one machine of a tier has for workers.

    Attributes:
        cpu: Quantity; a share of it is requested, and is the limit.
        memory: Quantity; a share of it is requested, all of it is the limit.
        gpus: `>= 0`.
        devices: How they are asked for.
        clients: Parts of one GPU, with MPS or time slicing, `>= 1`.
    """

    cpu: str = "1"
    memory: str = "2Gi"
    gpus: int = 0
    devices: DevicePolicy = DevicePolicy.NONE
    clients: int = 10

    def __post_init__(self) -> None:
        checks.require(quantity(self.cpu) > 0, "cpu", "must be > 0", self.cpu)
        checks.require(quantity(self.memory) > 0, "memory", "must be > 0", self.memory)
        checks.require(self.gpus >= 0, "gpus", "must be >= 0", self.gpus)
        checks.require(self.clients >= 1, "clients", "must be >= 1", self.clients)
        needed = self.devices is not DevicePolicy.NONE
        checks.require(self.gpus > 0 or not needed, "gpus", f"must be > 0 with {self.devices}", 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderSettings:
    """What all workers have in common.

    Attributes:
        namespace: Where they run.
        image: Of their container.
        pull_policy: Of the image.
        pinning: To machines or tiers.
        machine: Of every tier that `machines` does not name.
        machines: Tier -> its machines.
        standby: Further replicas per tier that are warm, on any node of the tier, `>= 0`. Nobody
            scheduled them: they ask for more than the schedule granted.
        tls_secret: Secret with `tls.crt`, `tls.key`, `ca.crt` of workers.
        environment: Folder of every node with the Python packages; None: the image has them.
        allow_import: Whether workers may load `module:attribute`.
        dispatcher: Labels of the pods that send requests; they may be in any namespace.
    """

    namespace: str = "default"
    image: str = "circinus/worker:latest"
    pull_policy: str = "IfNotPresent"
    pinning: Pinning = Pinning.MACHINE
    machine: MachineShape = field(default_factory=MachineShape)
    machines: Mapping[str, MachineShape] = field(default_factory=dict)
    standby: int = 0
    tls_secret: str = "circinus-workers-tls"
    environment: str | None = None
    allow_import: bool = False
    dispatcher: Mapping[str, str] = field(
        default_factory=lambda: {"app.kubernetes.io/name": "circinus"}
    )

    def __post_init__(self) -> None:
        checks.require(self.standby >= 0, "standby", "must be >= 0", self.standby)
        checks.require(bool(self.namespace), "namespace", "must not be empty", self.namespace)

    def machine_of(self, tier: str) -> MachineShape:
        """Give the machines of a tier."""
        return self.machines.get(tier, self.machine)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ScheduledPlan:
    """A query's plan on its machines.

    Attributes:
        query_id: Whose.
        pipeline_reference: See `pipelines.registry`.
        plan: What runs.
        graph: Of its pipeline.
        infrastructure: That it was planned for.
        slices: A slice for every item of the plan's demand, in its order; none: the schedule is
            not known, workers are bound to tiers.
    """

    query_id: str
    pipeline_reference: str
    plan: Plan
    graph: PipelineGraph
    infrastructure: Infrastructure
    slices: tuple[Slice, ...] = ()

    def __post_init__(self) -> None:
        if not self.slices:
            return
        granted = [(s.tier, parts_of(s.share)) for s in self.slices]
        asked = [(tier, parts_of(share)) for tier, share in self.plan.demand]
        if granted != asked:
            rule = f"must be those of plan {self.plan.id}, {asked}"
            raise InvalidInput.of("slices", rule, granted)

    def placed(self) -> list[tuple[InstanceSpec, int | None]]:
        """Give the instances, each with its machine; None: any of the tier.

        Raises:
            InvalidInput: If the plan names an operator or tier that does not exist.
        """
        desired = DesiredDeployment(pipeline_reference=self.pipeline_reference, plan=self.plan)
        found = instances_of(self.query_id, desired, self.graph, self.infrastructure)
        specs = list(found.values())
        if not self.slices:
            return [(spec, None) for spec in specs]
        machines = [None if self._dedicated(s.tier) else s.machine for s in self.slices]
        return list(zip(specs, machines, strict=True))

    def _dedicated(self, tier: str) -> bool:
        return self.infrastructure.tier(tier).dedicated
