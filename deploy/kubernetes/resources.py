"""What a share of a machine is in requests, limits and GPUs: always rounded down. Pure.

So workers that together have a whole machine never ask for more than it has. GPUs are extended
resources, as NVIDIA's device plug-in for Kubernetes offers them (its README: "Shared Access to
GPUs"; MIG: "MIG Support in Kubernetes"): whole numbers, requested and limited alike.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple

from circinus.deploy.runtime.instances import InstanceSpec
from circinus.deploy.workers.shares import Enforcement, enforcement_for
from circinus.pipelines import checks
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.shares import SHARE_STEP, GpuSharing
from circinus.pipelines.model.tiers import Tier

_FORM = re.compile(r"[+-]?[0-9.]+([eE][+-]?[0-9]+|[numkMGTPE]|[KMGTPE]i)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineShape:
    """What one machine has for workers, besides its GPUs (`gpus`)."""

    cpu: str = "1"  # quantity; a share of it is requested, and is the limit
    memory: str = "2Gi"  # quantity; a share of it is requested, all of it is the limit

    def __post_init__(self) -> None:
        checks.require(quantity(self.cpu) > 0, "cpu", "must be > 0", self.cpu)
        checks.require(quantity(self.memory) > 0, "memory", "must be > 0", self.memory)

    def of(self, tier: Tier) -> MachineShape:
        """Return the shape of a tier's machines: what the infrastructure states, else this."""
        cpu, memory = self.cpu, self.memory
        if tier.cores is not None:
            cpu = f"{max(1, int(_exact(tier.cores) * 1000))}m"
        if tier.memory_gib is not None:
            memory = f"{max(1, int(_exact(tier.memory_gib) * 1024))}Mi"
        return MachineShape(cpu=cpu, memory=memory)

    def milli_cpu(self, share: float) -> int:
        """Return a share of its CPU in thousandths of a core."""
        return int(quantity(self.cpu) * 1000 * _exact(share))

    def mebibytes(self, share: float) -> int:
        """Return a share of its memory."""
        return int(quantity(self.memory) / 2**20 * _exact(share))

    def resources(self, share: float) -> dict[str, dict[str, str]]:
        """Return `requests` and `limits`."""
        milli = self.milli_cpu(share)
        cpu = f"{milli}m" if milli % 1000 else f"{milli // 1000}"
        return {
            "requests": {"cpu": cpu, "memory": self._memory(share)},
            # What a worker needs in memory does not grow with its share of the time.
            "limits": {"cpu": cpu, "memory": self._memory(1.0)},
        }

    def _memory(self, share: float) -> str:
        mebi = self.mebibytes(share)
        return f"{mebi // 1024}Gi" if mebi and mebi % 1024 == 0 else f"{mebi}Mi"


def quantity(text: str) -> Decimal:
    """Return the exact number of a quantity such as `2Gi` stands for; InvalidInput if it is none.

    Read by the official client, which by itself lets `1K`, `1_0`, ` 1` and `nan` through.
    """
    from kubernetes.utils import parse_quantity  # takes a second: not everybody has quantities

    if _FORM.fullmatch(text):
        with suppress(ValueError):
            return Decimal(parse_quantity(text))  # type: ignore[no-untyped-call]
    raise InvalidInput.of("quantity", "must be a number with a suffix of Kubernetes", text)


def _exact(figure: float) -> Decimal:
    return Decimal(str(figure))


class DeviceResources(NamedTuple):
    """What a worker's container gets because of its GPUs; nothing where it uses none."""

    requests: Mapping[str, str]  # resource -> how many, as requests and as limits
    env: Mapping[str, str]  # variables of the container


def device_resources(tier: Tier, share: float) -> DeviceResources:
    """Return what a worker with a share of one machine of a tier asks for.

    The tier as the machine's type makes it. InvalidInput if its GPUs do not give that share, or if
    it has types with unlike GPUs, so that it is not known which.
    """
    gpus, where = tier.gpus, f"share on {tier.name}"
    unlike = {each.name: each.gpus.in_words() for each in tier.types if each.gpus is not None}
    rule = "must be of a machine of one type: their GPUs are unlike, and no schedule says which"
    checks.require(gpus is not None or not unlike, where, rule, share)
    if gpus is None:
        return DeviceResources({}, {})
    shares = ", ".join(f"{step * SHARE_STEP:g}" for step in gpus.steps)
    rule = f"must be one that a machine's {gpus.in_words()} give: {shares}"
    checks.require(gpus.grants(share), where, rule, share)
    if gpus.kind is GpuSharing.WHOLE:
        return DeviceResources({gpus.resource: f"{round(share * gpus.count)}"}, {})
    if gpus.kind is not GpuSharing.MPS:
        return DeviceResources({gpus.resource: "1"}, {})
    # The plug-in gives an MPS client 100 / parts percent of the threads, rounded down; its own
    # figure can only be less, and of a share in steps it is a whole one.
    threads = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": f"{round(share * gpus.count * 100)}"}
    return DeviceResources({gpus.resource: "1"}, threads)


def pool_requirements(infrastructure: Infrastructure) -> dict[str, dict[str, str]]:
    """Return what a node of each tier, or type `TIER/TYPE`, needs to count as its machine.

    Resource -> quantity; what is not amounts of a tier is left out.
    """
    pools = (pool for tier in infrastructure.tiers for pool in tier.pools.items())
    return {name: _requirements(pool) for name, pool in pools}


def _requirements(tier: Tier) -> dict[str, str]:
    shape = MachineShape().of(tier)
    amounts = {} if tier.cores is None else {"cpu": shape.cpu}
    amounts |= {} if tier.memory_gib is None else {"memory": shape.memory}
    return amounts | ({} if tier.gpus is None else {tier.gpus.resource: f"{tier.gpus.places}"})


def enforcement_of(spec: InstanceSpec, *, cgroups: bool) -> Enforcement:
    """Return how an instance in a pod keeps to its share; `cgroups`: its CPU has that limit."""
    gpus = spec.tier.gpus
    enforced = gpus is not None and gpus.enforced
    return enforcement_for(spec.operators, spec.share, cgroups=cgroups, devices=enforced)
