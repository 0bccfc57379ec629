"""What a worker asks of the GPUs of its node, so that it gets its share and no more.

Pure. Asked for are extended resources, as NVIDIA's device plug-in for Kubernetes offers them (its
README: "Shared Access to GPUs"; MIG: "MIG Support in Kubernetes"). These are whole numbers, and
what is requested has to be the limit, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from circinus.deploy.kubernetes.api import Object
from circinus.deploy.kubernetes.resources import MachineShape
from circinus.deploy.runtime.instances import InstanceSpec
from circinus.deploy.workers.shares import Enforcement, enforcement_for
from circinus.pipelines import checks
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.shares import SHARE_STEP, Gpus, GpuSharing
from circinus.pipelines.model.tiers import Tier

_THREADS = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"


class DeviceResources(NamedTuple):
    """What a worker's container is given because of its GPUs; nothing where it uses none."""

    asked: Mapping[str, str]  # resource -> how many, as requests and as limits
    env: Mapping[str, str]  # variables of the container

    def added_to(self, container: Object) -> Object:
        """Return a container that also asks for them."""
        if not self.asked:
            return container
        resources = container["resources"]
        both = {of: {**resources[of], **self.asked} for of in ("requests", "limits")}
        env = [{"name": name, "value": value} for name, value in self.env.items()]
        own = container.get("env") or []
        variables = {"env": [*own, *env]} if own or env else {}
        return {**container, "resources": {**resources, **both}, **variables}


def device_resources(tier: Tier, share: float) -> DeviceResources:
    """Return what a worker with a share of one machine of a tier asks for.

    The tier as the machine's type makes it. InvalidInput if its GPUs do not give that share, or if
    it has types with unlike GPUs, so that nobody knows which.
    """
    gpus, where = tier.gpus, f"share on {tier.name}"
    unlike = {each.name: each.gpus.in_words() for each in tier.types if each.gpus is not None}
    rule = "must be of a machine of one type: their GPUs are unlike, and no schedule says which"
    checks.require(gpus is not None or not unlike, where, rule, share)
    if gpus is None:
        return DeviceResources({}, {})
    given = ", ".join(f"{step * SHARE_STEP:g}" for step in gpus.steps)
    rule = f"must be one that a machine's {gpus.in_words()} give: {given}"
    checks.require(gpus.grants(share), where, rule, share)
    if gpus.kind is GpuSharing.WHOLE:
        return DeviceResources({gpus.resource: f"{round(share * gpus.count)}"}, {})
    return DeviceResources({gpus.resource: "1"}, _limits(gpus, share))


def told_of_pools(infrastructure: Infrastructure) -> dict[str, dict[str, str]]:
    """Return what a node of each tier, or type `TIER/TYPE`, needs to count as its machine.

    Resource -> quantity; what is not told of a tier is left out.
    """
    pools = [pool for tier in infrastructure.tiers for pool in tier.pools.items()]
    return {name: _told_of(pool) for name, pool in pools}


def _told_of(tier: Tier) -> dict[str, str]:
    shape = MachineShape().of(tier)
    told = {
        "cpu": None if tier.cores is None else shape.cpu,
        "memory": None if tier.memory_gib is None else shape.memory,
    }
    gpus = {} if tier.gpus is None else {tier.gpus.resource: f"{tier.gpus.places}"}
    return {name: amount for name, amount in told.items() if amount is not None} | gpus


def enforcement_of(spec: InstanceSpec, *, cgroups: bool) -> Enforcement:
    """Return how an instance in a pod keeps to its share; `cgroups`: its CPU has that limit."""
    gpus = spec.tier.gpus
    enforced = gpus is not None and gpus.enforced
    return enforcement_for(spec.operators, spec.share, cgroups=cgroups, devices=enforced)


def _limits(gpus: Gpus, share: float) -> dict[str, str]:
    """Return the variables that hold a worker in its part to its share.

    The plug-in gives an MPS client 100 / parts percent of the threads, rounded down; its own
    figure can only be less, and of a share in steps it is a whole one.
    """
    if gpus.kind is not GpuSharing.MPS:
        return {}
    return {_THREADS: f"{round(share * gpus.count * 100)}"}
