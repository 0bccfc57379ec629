"""All checks of a cluster, in the order in which somebody would set things right."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from circinus.deploy.kubernetes.api import Cluster, Forbidden, Object
from circinus.deploy.kubernetes.fitness.machines import machines
from circinus.deploy.kubernetes.fitness.needs import ClusterCheck, ClusterNeeds
from circinus.deploy.kubernetes.fitness.server import definition, namespace, rights, version
from circinus.deploy.kubernetes.fitness.surroundings import dns, storage
from circinus.pipelines.errors import CircinusError

Look = Callable[[Cluster, ClusterNeeds], Iterator[ClusterCheck]]


def look(cluster: Cluster, needs: ClusterNeeds, wanted: Object) -> Iterator[ClusterCheck]:
    """Yield what was found of each need; a server that does not answer is the only finding then.

    `wanted` is the definition of PipelineQuery of this release. Reads only.
    """
    try:
        yield version(cluster)
    except CircinusError as error:
        remedy = "see to the way there: --kubeconfig, KUBECONFIG, the network, the credentials"
        yield ClusterCheck("API server", "fail", str(error), remedy)
        return
    looks: dict[str, Look] = {
        "namespace": namespace,
        "rights": rights,
        "definition": partial(definition, wanted=wanted),
        "nodes": machines,
        "cluster DNS": dns,
        "storage": storage,
    }
    for name, each in looks.items():
        try:
            yield from each(cluster, needs)
        except Forbidden as error:
            yield ClusterCheck(name, "note", f"this account may not look: {error}")
        except CircinusError as error:
            yield ClusterCheck(name, "fail", str(error), "try again")
