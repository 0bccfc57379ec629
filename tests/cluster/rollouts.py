"""Plans and rollouts for tests on a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from circinus.deploy.kubernetes.api import Cluster as Connected
from circinus.deploy.kubernetes.api import Object, collection_of, connect
from circinus.deploy.kubernetes.inventory import KINDS
from circinus.deploy.kubernetes.manifests import Rendered, render
from circinus.deploy.kubernetes.names import QUERY
from circinus.deploy.kubernetes.pods import Pinning, RenderSettings
from circinus.deploy.kubernetes.resources import MachineShape
from circinus.deploy.kubernetes.rollout import Rollout
from circinus.pipelines.clock import SystemClock
from tests.cluster.cluster import Cluster
from tests.deploy.scheduled_plans import scheduled_chain

SHAPE = MachineShape(cpu="1", memory="1Gi")


def connected(cluster: Cluster) -> Connected:
    """A client of ours, as the administrator."""
    return Connected(connect(cluster.kubeconfig))


def rollout(cluster: Cluster, namespace: str, **options: Any) -> Rollout:  # noqa: ANN401
    """A rollout as the administrator; `options` are its settings."""
    return Rollout(connected(cluster), namespace, SystemClock(), **{"timeout_s": 60.0, **options})


def rendered(
    namespace: str,
    query: str = "q",
    placement: Sequence[str] = ("device", "edge", "cloud"),
    *,
    share: float = 0.2,
    shape: MachineShape = SHAPE,
    machine: int = 0,
    pinning: Pinning = Pinning.TIER,
) -> Rendered:
    """A chain of operators, one on each tier of `placement`, rendered."""
    scheduled = scheduled_chain(
        query,
        placement,
        shares=dict.fromkeys(placement, share),
        machines={tier: [machine] for tier in placement},
    )
    return render(scheduled, RenderSettings(namespace=namespace, machine=shape, pinning=pinning))


def ours(cluster: Cluster, namespace: str) -> list[Object]:
    """Everything in a namespace that bears our label."""
    found = []
    for kind in KINDS:
        found += cluster.api.items(collection_of(kind, namespace), labelSelector=QUERY)
    return found
