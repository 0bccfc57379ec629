"""What the service's launcher makes of instances, on a control plane; nobody answers there."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from circinus.deploy.kubernetes.api import collection_of, key_of, path_of
from circinus.deploy.kubernetes.launcher import ClusterLauncher
from circinus.deploy.kubernetes.names import PLAN
from circinus.deploy.kubernetes.ownership import DEFAULT_RELEASE, belonging
from circinus.deploy.kubernetes.pods import RenderSettings, name_of, tier_budget, worker_objects
from circinus.deploy.runtime.instances import InstanceKey, InstanceSpec
from circinus.deploy.workers.transport import files_in
from circinus.pipelines.model.configuration import ConfigurationSpace
from circinus.pipelines.model.tiers import Tier
from tests.cluster.api import eventually
from tests.cluster.cluster import Cluster
from tests.cluster.rollouts import SHAPE, connected
from tests.deploy.scheduled_plans import chain

pytestmark = pytest.mark.cluster
KINDS = ("Deployment", "Service", "PodDisruptionBudget")


def spec(plan_id: str, replica: int = 0) -> InstanceSpec:
    graph = chain("digits", 1)
    return InstanceSpec(
        key=InstanceKey("q", plan_id, "edge", replica),
        pipeline_reference="digits",
        operators=graph.operators,
        configuration=ConfigurationSpace(graph).configuration(0),
        tier=Tier(name="edge"),
        share=0.2,
    )


def put(cluster: Cluster, settings: RenderSettings, *specs: InstanceSpec) -> None:
    client = connected(cluster)
    for each in specs:
        for document in (tier_budget(each, settings), *worker_objects(each, settings)):
            ours = belonging(document, DEFAULT_RELEASE, None)
            client.apply(path_of(settings.namespace, key_of(document)), ours)


def plans_in(cluster: Cluster, namespace: str) -> dict[str, list[str]]:
    """Return kind -> the plans that its objects are of."""
    return {
        kind: sorted(
            item["metadata"]["labels"][PLAN]
            for item in cluster.api.items(collection_of(kind, namespace), labelSelector=PLAN)
            if "deletionTimestamp" not in item["metadata"]
        )
        for kind in KINDS
    }


def test_the_instances_of_a_tier_share_a_budget_that_counts_them(
    cluster: Cluster, namespace: str
) -> None:
    settings = RenderSettings(namespace=namespace, machine=SHAPE)
    put(cluster, settings, spec("p", 0), spec("p", 1), spec("other"))

    def told() -> list[tuple[object, object]]:
        budgets = cluster.api.items(collection_of("PodDisruptionBudget", namespace))
        states = [budget.get("status") or {} for budget in budgets]
        return sorted((s.get("expectedPods"), s.get("disruptionsAllowed")) for s in states)

    eventually(lambda: told() == [(1, 1), (2, 1)], "one of each plan's workers may go")


def test_what_nobody_wants_goes_with_its_budget_and_the_rest_stays(
    cluster: Cluster, namespace: str
) -> None:
    settings = RenderSettings(namespace=namespace, machine=SHAPE)
    put(cluster, settings, spec("p", 0), spec("p", 1), spec("old"))

    async def pruned() -> tuple[str, ...]:
        launcher = ClusterLauncher(connected(cluster), settings, files_in(Path("none")))
        try:
            return await launcher.prune({("q", "p")}, {("q", "p"): [name_of(spec("p").key)]})
        finally:
            launcher.ready.stop()

    names = asyncio.run(pruned())

    # One plan is not wanted, and of the other an instance that an earlier run left.
    assert set(names) == {name_of(spec("old").key), name_of(spec("p", 1).key)}
    eventually(
        lambda: plans_in(cluster, namespace) == {kind: ["p"] for kind in KINDS},
        "what is wanted alone",
    )
