"""Plans and rollouts for tests on a cluster."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from circinus.deploy.kubernetes.api import Cluster as Connected
from circinus.deploy.kubernetes.api import Object, collection_of, connect
from circinus.deploy.kubernetes.inventory import KINDS
from circinus.deploy.kubernetes.manifests import Rendered, render
from circinus.deploy.kubernetes.names import QUERY, TIER
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


@contextmanager
def watching(
    cluster: Cluster, namespace: str, tiers: Sequence[str]
) -> Iterator[Callable[[], Mapping[str, int]]]:
    """Return a function that tells the least number of ready pods that each tier had meanwhile."""
    seen: list[Counter[str]] = []
    over = threading.Event()

    def look() -> None:
        while not over.is_set():
            pods = cluster.api.items(f"/api/v1/namespaces/{namespace}/pods")
            seen.append(Counter(p["metadata"]["labels"].get(TIER) for p in pods if serves(p)))
            over.wait(0.02)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield lambda: {tier: min(there[tier] for there in seen) for tier in tiers}
    finally:
        over.set()
        thread.join()


def serves(pod: Object) -> bool:
    """Whether a pod is ready and not on its way out."""
    conditions = pod["status"].get("conditions") or []
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
    return ready and "deletionTimestamp" not in pod["metadata"]
