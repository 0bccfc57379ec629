"""What an installation needs of its cluster, by the chart's values.

A check fails only where something is surely missing; what installing makes, and what this account
may not look at, is a note.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kubernetes.config.incluster_config import SERVICE_TOKEN_FILENAME

from circinus.deploy.kubernetes.api import Object
from circinus.deploy.kubernetes.pod_template import PodTemplate
from circinus.deploy.kubernetes.resources import pool_requirements, quantity
from circinus.pipelines import checks
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.io.infrastructure_file import infrastructure_from_dict
from circinus.pipelines.io.presets import PRESETS
from circinus.pipelines.model.infrastructure import Infrastructure

Values = Mapping[str, Any]
"""Values of the chart."""
TOLERATIONS = "deployment.podTemplate.spec.tolerations"
_ON, _OFF = True, False
_WORDS = {
    bool: "true or false",
    str: "text",
    int: "a whole number",
    float: "a number",
    list: "a list",
    dict: "a mapping",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterNeeds:
    """What is needed. As it is made here: everything that the chart can turn on."""

    namespace: str = "default"  # of the installation
    installs: bool = True  # whether the account is to install, not only to run
    deploys: bool = True  # whether plans run as pods
    discovers: bool = True  # whether machines are counted from nodes
    operates: bool = True  # whether PipelineQuery objects are followed
    defines: bool = True  # whether installing brings their definition
    # Machines that are stated of each shared tier or type `TIER/TYPE`, of others 1; None: the
    # tiers that labels of nodes name
    tiers: Mapping[str, int] | None = None
    # of these, those that a NodePool of the chart makes nodes of once pods wait for them
    rented: frozenset[str] = frozenset()
    least: Mapping[str, str] = field(default_factory=lambda: {"cpu": "1", "memory": "2Gi"})
    # what a node of a tier or type has to give besides, or instead
    own: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    tolerations: tuple[Object, ...] = ()  # of the pods of plans
    claims: bool = True  # whether a volume is claimed for the state
    storage_class: str = ""  # of it; empty: the cluster's default; `-`: none
    existing_claim: str = ""  # in place of one; empty: a new one
    has_url: bool = False  # whether operators have the service's address, without DNS


def runs_as_pod() -> bool:
    """Return whether this process has the account of a pod, as what is installed has."""
    return Path(SERVICE_TOKEN_FILENAME).exists()


def needs_of(values: Values, *, namespace: str, installs: bool) -> ClusterNeeds:
    """Return what the chart needs with these values, and its defaults for those left out.

    InvalidInput if a value that is looked at here breaks a rule; helm checks the others.
    """
    target = _at(values, "deployment.target", "local")
    checks.among("deployment.target", target, ("local", "kubernetes"))
    machine = {
        name: str(_at(values, f"deployment.machine.{name}", default, int, float))
        for name, default in (("cpu", "1"), ("memory", "2Gi"))
    }
    for name, amount in machine.items():
        checks.require(quantity(amount) > 0, f"deployment.machine.{name}", "must be > 0", amount)
    planned_for = _infrastructure(values)
    return ClusterNeeds(
        namespace=namespace,
        installs=installs,
        deploys=target == "kubernetes",
        discovers=_at(values, "discovery.enabled", _OFF),
        operates=_at(values, "operator.enabled", _ON),
        defines=_at(values, "crds.install", _ON),
        tiers={
            name: 1 if tier.dedicated else pool.machines
            for tier in planned_for.tiers
            for name, pool in tier.pools.items()
        },
        rented=frozenset(_rented(_at(values, "nodePools", []))),
        least=machine,
        own={name: amounts for name, amounts in pool_requirements(planned_for).items() if amounts},
        tolerations=PodTemplate(_at(values, "deployment.podTemplate", {})).tolerations,
        claims=_at(values, "persistence.enabled", _ON),
        storage_class=_at(values, "persistence.storageClass", ""),
        existing_claim=_at(values, "persistence.existingClaim", ""),
        has_url=bool(_at(values, "operator.serviceUrl", "")),
    )


def _rented(pools: Sequence[object]) -> Iterator[str]:
    """Yield the tiers, or types `TIER/TYPE`, of NodePools of the chart."""
    for pool in pools:
        tier = _at({"nodePools": pool}, "nodePools.tier", "")
        kind = _at({"nodePools": pool}, "nodePools.machineType", "")
        yield "/".join(filter(None, (tier, kind)))


def _at(values: Values, path: str, default: Any, *more: type) -> Any:  # noqa: ANN401 - of YAML
    """Return what is at a dotted path, of the default's kind or more; where nothing is, that."""
    value: Any = values
    for name in path.split("."):
        if not isinstance(value, Mapping):
            raise InvalidInput.of(path, "must be below a mapping", value)
        value = value.get(name)
        if value is None:
            return default
    kinds = (type(default), *more)
    rule = f"must be {' or '.join(_WORDS[kind] for kind in kinds)}"
    checks.require(type(value) in kinds, path, rule, value)  # a truth is no number here
    return value


def _infrastructure(values: Values) -> Infrastructure:
    document = _at(values, "infrastructure.document", {})
    if document:
        return infrastructure_from_dict(document)
    preset = _at(values, "infrastructure.preset", "") or "local"
    checks.among("infrastructure.preset", preset, PRESETS)
    return PRESETS[preset]
