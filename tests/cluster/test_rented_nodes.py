"""Pods of a tier without nodes wait, and what Karpenter reads of them fits the NodePool.

Karpenter itself is played: for pods that no node may take it makes claims of the NodePool that
has their labels, first fit, and a simulated node of each.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import yaml

from circinus.deploy.kubernetes.api import collection_of, key_of, path_of
from circinus.deploy.kubernetes.ownership import DEFAULT_RELEASE, belonging
from circinus.deploy.kubernetes.pods import RenderSettings, tier_budget, worker_objects
from circinus.deploy.kubernetes.resources import quantity
from circinus.deploy.runtime.instances import InstanceKey, InstanceSpec
from circinus.pipelines.model.configuration import ConfigurationSpace
from circinus.pipelines.model.tiers import Tier
from circinus.scheduler.policies.rental import Rental
from circinus.scheduler.problem import Problem
from circinus.scheduler.rolling.assessment import rent_of
from tests.cluster import simulated
from tests.cluster.api import eventually
from tests.cluster.chart import of_kind, template
from tests.cluster.cluster import Cluster
from tests.cluster.definitions import definition_of
from tests.cluster.rollouts import SHAPE, connected
from tests.cluster.strictly import violations
from tests.deploy.scheduled_plans import chain
from tests.scheduler.problems import candidate, plan

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

TIER = Tier(name="rented", machines=4, price_usd_per_hour=2.0)  # of this test alone
POOL: dict[str, Any] = {
    "tier": TIER.name,
    "instanceTypes": ["m6i.large"],
    "nodeClass": {"name": "default"},
    "limits": {"cpu": "4"},
}
SHARES = {"q0": 0.6, "q1": 0.6, "q2": 0.3}  # on two machines
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_POOLS, _CLAIMS = "/apis/karpenter.sh/v1/nodepools", "/apis/karpenter.sh/v1/nodeclaims"


def node_pool() -> dict[str, Any]:
    """Return the NodePool that the chart makes."""
    values = {"nodePools": [POOL], "deployment": {"target": "kubernetes"}}
    flags = [f"{name}={json.dumps(value)}" for name, value in values.items()]
    done = template(*(word for flag in flags for word in ("--set-json", flag)))
    assert done.returncode == 0, done.stderr
    documents = [document for document in yaml.safe_load_all(done.stdout) if document]
    return of_kind(documents, "NodePool", f"ns-c-{TIER.name}")


def instance(query_id: str, share: float) -> InstanceSpec:
    graph = chain("digits", 1)
    return InstanceSpec(
        key=InstanceKey(query_id, "p", TIER.name, 0),
        pipeline_reference="digits",
        operators=graph.operators,
        configuration=ConfigurationSpace(graph).configuration(0),
        tier=TIER,
        share=share,
    )


@pytest.fixture
def karpenter(cluster: Cluster) -> Iterator[dict[str, Any]]:
    """Define Karpenter's kinds, and apply the chart's NodePool strictly; return it."""
    for kind, path in (("NodePool", _POOLS), ("NodeClaim", _CLAIMS)):
        definition = definition_of(kind)
        if cluster.api.get(f"{_DEFINITIONS}/{definition['metadata']['name']}") is None:
            cluster.api.create(_DEFINITIONS, definition)
        eventually(partial(is_served, cluster, path), f"kind {kind}")
    pool = node_pool()
    assert violations(pool) == []
    cluster.api.create(f"{_POOLS}?fieldValidation=Strict", pool)
    yield pool
    cluster.api.delete(f"{_POOLS}/{pool['metadata']['name']}")


def is_served(cluster: Cluster, path: str) -> bool:
    """Whether a kind that was just defined is there already."""
    try:
        return cluster.api.get(path) is not None
    except RuntimeError as error:
        if "storage is (re)initializing" in str(error):
            return False
        raise


def unschedulable(cluster: Cluster, namespace: str) -> list[dict[str, Any]]:
    """Return the pods that no node may take, by name."""
    pods = cluster.api.items(collection_of("Pod", namespace))

    def waits(pod: dict[str, Any]) -> bool:
        conditions = (pod.get("status") or {}).get("conditions") or []
        return any(
            c["type"] == "PodScheduled" and c.get("reason") == "Unschedulable" for c in conditions
        )

    return sorted(filter(waits, pods), key=lambda pod: str(pod["metadata"]["name"]))


def requested_cpu(pod: dict[str, Any]) -> float:
    requests = (each["resources"]["requests"]["cpu"] for each in pod["spec"]["containers"])
    return float(sum(map(quantity, requests)))


def claims_for(pods: list[dict[str, Any]], pool: dict[str, Any]) -> list[float]:
    """Return the CPU that each new machine of a pool gives to pods, the largest first."""
    made = pool["spec"]["template"]["metadata"]["labels"]
    used: list[float] = []
    for cpu in sorted(map(requested_cpu, pods), reverse=True):
        room = next((i for i, there in enumerate(used) if there + cpu <= float(SHAPE.cpu)), None)
        if room is None:
            used.append(cpu)
        else:
            used[room] += cpu
    for pod in pods:
        assert pod["spec"]["nodeSelector"].items() <= made.items()
    return used


def claim(cluster: Cluster, pool: dict[str, Any], name: str, cpu: float) -> None:
    """Make a NodeClaim as Karpenter does, which the server checks strictly."""
    template = pool["spec"]["template"]
    spec = {**template["spec"], "resources": {"requests": {"cpu": f"{cpu:g}"}}}
    labels = {**template["metadata"]["labels"], "karpenter.sh/nodepool": pool["metadata"]["name"]}
    body = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {"name": name, "labels": labels},
        "spec": spec,
    }
    cluster.api.create(f"{_CLAIMS}?fieldValidation=Strict", body)


def test_pods_of_a_rented_tier_get_the_claims_that_the_schedule_rents(
    cluster: Cluster, namespace: str, karpenter: dict[str, Any]
) -> None:
    queries = tuple(candidate(q, plan("p", (TIER.name, share))) for q, share in SHARES.items())
    problem = Problem(tiers=(TIER,), candidates=queries)
    rent = rent_of(problem, Rental().schedule(problem))
    settings = RenderSettings(namespace=namespace, machine=SHAPE)
    client = connected(cluster)
    for query_id, share in SHARES.items():
        spec = instance(query_id, share)
        for document in (tier_budget(spec, settings), *worker_objects(spec, settings)):
            ours = belonging(document, DEFAULT_RELEASE, None)
            client.apply(path_of(namespace, key_of(document)), ours)
    eventually(lambda: len(unschedulable(cluster, namespace)) == len(SHARES), "pods that wait")

    claims = claims_for(unschedulable(cluster, namespace), karpenter)
    assert len(claims) == len(rent.machines) == 2
    assert len(claims) * float(SHAPE.cpu) <= float(karpenter["spec"]["limits"]["cpu"])

    nodes: list[str] = []
    try:
        for number, cpu in enumerate(claims):
            name = f"{karpenter['metadata']['name']}-{number}"
            claim(cluster, karpenter, name, cpu)
            nodes.append(simulated.add_node(cluster.api, TIER.name, number, cpu=SHAPE.cpu))
        eventually(lambda: not unschedulable(cluster, namespace), "every pod on a rented node")
        pods = cluster.api.items(collection_of("Pod", namespace))
        assert {pod["spec"].get("nodeName") for pod in pods} == set(nodes)
    finally:
        for number, node in enumerate(nodes):
            cluster.api.delete(f"/api/v1/nodes/{node}")
            cluster.api.delete(f"{_CLAIMS}/{karpenter['metadata']['name']}-{number}")
