"""Observes how many of each unit a cluster provides and how many answer. Pure.

It uses conditions of objects, which can be read at any time, and by one event: Karpenter
deletes a NodeClaim that it got no machine for. A pod without a node is not had, unless Karpenter
makes one for it, nor one whose node is gone or silent, which the cluster takes a minute to
report.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from circinus.deploy.kubernetes.api import Object
from circinus.deploy.kubernetes.diagnosis import replica_failure
from circinus.deploy.kubernetes.routing.targets import ClusterRoute, UnitNodePool
from circinus.scheduler.routing.units import DeploymentUnit

POOL_LABEL = "karpenter.sh/nodepool"
REFUSED = "InsufficientCapacityError"
"""Reason of the event of a NodeClaim that its provider had no machine for."""

_TEMPLATE = "pod-template-hash"
_OVER = ("Succeeded", "Failed")
_SECONDS = len("2026-01-01T00:00:00")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterState:
    """What there is in a cluster."""

    deployments: Mapping[str, Object]  # by name, of the route's namespace
    pods: Sequence[Object] = ()  # of the same
    claims: Sequence[Object] = ()  # NodeClaims
    refusals: Sequence[Object] = ()  # events of reason `REFUSED`
    nodes: Mapping[str, Object] | None = None  # by name; None: not observed
    # uid of a pod -> since when it is known to have no node
    waiting_since: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitState:
    """What a cluster provides of a unit."""

    available: int | None  # that run or can be had; None: any number
    ready: int = 0  # pods that answer
    templates: frozenset[str] = frozenset()  # of those pods: hashes
    why: str = ""  # why no more can be had; empty: all that is wanted can
    again_s: float = inf  # when it has to be looked at again although nothing happens


def waiting_pods(pods: Iterable[Object]) -> list[Object]:
    """Return the pods that a scheduler could not place on a node, and that do not end."""
    return [pod for pod in pods if not _ends(pod) and _unscheduled(pod) is not None]


def unit_states(route: ClusterRoute, state: ClusterState, at_s: float) -> dict[str, UnitState]:
    """Return what a cluster provides of each unit, at a time of the clock of `waiting_since`."""
    return {unit.name: _unit_state(route, unit, state, at_s) for unit in route.route.units}


def _unit_state(
    route: ClusterRoute, unit: DeploymentUnit, state: ClusterState, at_s: float
) -> UnitState:
    target = route.targets[unit.name]
    deployment = state.deployments.get(target.deployment)
    if deployment is None:
        return UnitState(available=0, why=f"there is no Deployment {target.deployment}")
    pods = [pod for pod in state.pods if not _ends(pod) and _is_of(pod, target.deployment)]
    stay = [pod for pod in pods if not _is_cut_off(pod, state.nodes)]
    placed = sum(1 for pod in stay if pod["spec"].get("nodeName"))
    had = placed if unit.available is None else min(placed, unit.available)
    answer = [pod for pod in stay if _is_true(pod, "Ready")]
    ready, templates = len(answer), frozenset(_labels(pod)[_TEMPLATE] for pod in answer)
    waiting = waiting_pods(pods)
    why, again_s = _shortage(target.node_pool, deployment, waiting, state, at_s - route.launch_s)
    if len(stay) < len(pods):
        cut_off = f"{len(pods) - len(stay)} pods are on nodes that are gone or silent"
        why = f"{why}; {cut_off}" if why else cut_off
    if not why:
        again_s += route.launch_s
        return UnitState(
            available=unit.available, ready=ready, templates=templates, again_s=again_s
        )
    return UnitState(available=had, ready=ready, templates=templates, why=why)


def _shortage(
    pool: UnitNodePool | None,
    deployment: Object,
    waiting: Sequence[Object],
    state: ClusterState,
    before_s: float,
) -> tuple[str, float]:
    """Return why no more can be had than runs, empty: more can be; and since when a pod waits."""
    if refused := replica_failure(deployment):
        return refused, inf
    words = _unscheduled_in_words(deployment, waiting) if waiting else ""
    if pool is None:
        return words, inf
    claims = [claim for claim in state.claims if _labels(claim).get(POOL_LABEL) == pool.name]
    failed = next(filter(None, map(_failed, claims)), "")
    if failed or not waiting:
        return failed, inf
    oldest = min(pod["metadata"]["creationTimestamp"][:_SECONDS] for pod in waiting)
    refusals = [e for e in state.refusals if _is_claim_of(e, pool.name) and _time(e) >= oldest]
    last = max(refusals, key=_time, default=None)
    if any(last is None or _time(claim) > _time(last) for claim in claims if _comes(claim)):
        return "", inf
    if last is not None:
        return f"{words} ({last.get('message') or REFUSED})", inf
    since_s = min(state.waiting_since.get(pod["metadata"]["uid"], before_s) for pod in waiting)
    return ("", since_s) if before_s < since_s else (words, inf)


def _unscheduled_in_words(deployment: Object, waiting: Sequence[Object]) -> str:
    condition = _unscheduled(waiting[0]) or {}
    message = condition.get("message") or condition.get("reason")
    wanted = deployment["spec"].get("replicas", 1)
    return f"{len(waiting)} of {wanted} pods find no node: {message}"


def _is_cut_off(pod: Object, nodes: Mapping[str, Object] | None) -> bool:
    """Whether the node of a pod is silent or gone.

    Watches differ by moments: a pod may be state on a node that is not yet. That has not run yet.
    """
    name = pod["spec"].get("nodeName")
    if nodes is None or not name:
        return False
    return not _is_true(nodes[name], "Ready") if name in nodes else _is_true(pod, "Ready")


def _is_of(pod: Object, deployment: str) -> bool:
    """Whether a ReplicaSet of a Deployment made a pod: its name is the Deployment's and a hash."""
    template = _labels(pod).get(_TEMPLATE)
    owners = pod["metadata"].get("ownerReferences") or []
    return any(
        (owner["kind"], owner["name"]) == ("ReplicaSet", f"{deployment}-{template}")
        for owner in owners
    )


def _failed(claim: Object) -> str:
    """Return why a NodeClaim gets no machine; empty: it does, or it is not known yet."""
    if claim["metadata"].get("deletionTimestamp"):
        return ""
    launched = _condition(claim, "Launched") or {}
    status, reason = launched.get("status"), launched.get("reason") or ""
    if status == "False" or (status == "Unknown" and re.search("Insufficient|Failed", reason)):
        cause = f"{reason or 'not launched'}: {launched.get('message', '')}".rstrip(": ")
        return f"{claim['metadata']['name']}: {cause}"
    return ""


def _comes(claim: Object) -> bool:
    """Whether a node is made of a NodeClaim that is not there yet."""
    over = claim["metadata"].get("deletionTimestamp") or _is_true(claim, "Initialized")
    return not over and not _failed(claim)


def _is_claim_of(event: Object, pool: str) -> bool:
    named = str((event.get("involvedObject") or {}).get("name", ""))
    return re.fullmatch(rf"{re.escape(pool)}-[a-z0-9]{{5}}", named) is not None


def _time(thing: Object) -> str:
    """Return when an event was last reported, or another object made: to be compared as text."""
    metadata = thing["metadata"]
    timestamp = thing.get("lastTimestamp") or thing.get("eventTime")
    return str(timestamp or metadata.get("creationTimestamp") or "")[:_SECONDS]


def _ends(pod: Object) -> bool:
    phase = (pod.get("status") or {}).get("phase")
    return bool(pod["metadata"].get("deletionTimestamp")) or phase in _OVER


def _unscheduled(pod: Object) -> Object | None:
    condition = _condition(pod, "PodScheduled") or {}
    refused = (condition.get("status"), condition.get("reason")) == ("False", "Unschedulable")
    return condition if refused else None


def _is_true(thing: Object, kind: str) -> bool:
    return (_condition(thing, kind) or {}).get("status") == "True"


def _condition(thing: Object, kind: str) -> Object | None:
    conditions = (thing.get("status") or {}).get("conditions") or []
    return next((each for each in conditions if each["type"] == kind), None)


def _labels(thing: Object) -> Mapping[str, str]:
    return thing["metadata"].get("labels") or {}
