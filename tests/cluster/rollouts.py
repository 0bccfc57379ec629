"""Plans of tests, applied on a cluster."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from circinus.deploy.kubernetes.api import Cluster as Connected
from circinus.deploy.kubernetes.api import Object, collection_of, connect, key_of, path_of
from circinus.deploy.kubernetes.manifests import Rendered, render
from circinus.deploy.kubernetes.names import QUERY, TIER
from circinus.deploy.kubernetes.pods import Pinning, RenderSettings
from circinus.deploy.kubernetes.resources import MachineShape
from tests.cluster.api import eventually
from tests.cluster.cluster import Cluster
from tests.deploy.scheduled_plans import scheduled_chain

SHAPE = MachineShape(cpu="1", memory="1Gi")
KINDS = ("ConfigMap", "NetworkPolicy", "Service", "PodDisruptionBudget", "Deployment")


def connected(cluster: Cluster) -> Connected:
    """A client of ours, as the administrator."""
    return Connected(connect(cluster.kubeconfig))


def apply(cluster: Cluster, plan: Rendered, *, timeout_s: float = 60.0) -> None:
    """Apply a plan's objects, and wait until all of its workers are ready."""
    client = connected(cluster)
    for document in plan.objects:
        client.apply(path_of(plan.namespace, key_of(document)), document)
    path = collection_of("Deployment", plan.namespace)
    eventually(
        lambda: all(map(is_ready, cluster.api.items(path, labelSelector=QUERY))),
        "every worker ready",
        timeout_s=timeout_s,
    )


def delete(cluster: Cluster, plan: Rendered) -> None:
    """Delete a plan's objects."""
    for document in plan.objects:
        cluster.api.delete(path_of(plan.namespace, key_of(document)))


def is_ready(deployment: Object) -> bool:
    """Whether all replicas are those of its newest template, and available."""
    status = deployment.get("status") or {}
    counts = [status.get(name, 0) for name in ("replicas", "updatedReplicas", "availableReplicas")]
    seen = status.get("observedGeneration", 0) >= deployment["metadata"].get("generation", 1)
    return seen and all(count == deployment["spec"].get("replicas", 1) for count in counts)


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
