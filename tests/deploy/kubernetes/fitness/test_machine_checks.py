"""Which nodes are machines, and why others are not, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from circinus.deploy.kubernetes.api import Object
from circinus.deploy.kubernetes.fitness.check import Check
from circinus.deploy.kubernetes.fitness.cluster import checks_of
from circinus.deploy.kubernetes.fitness.needs import ClusterNeeds, needs_of
from circinus.deploy.kubernetes.names import MACHINE_TYPE, TIER


def node(
    name: str,
    labels: Mapping[str, str] | str = "edge",
    *,
    spec: Mapping[str, object] | None = None,
    ready: bool = True,
    there: Mapping[str, str] | None = None,
) -> Object:
    given = {TIER: labels} if isinstance(labels, str) else dict(labels)
    return {
        "metadata": {"name": name, "labels": given},
        "spec": spec or {},
        "status": {
            "conditions": [{"type": "Ready", "status": str(ready)}],
            "allocatable": {"cpu": "4", "memory": "8Gi", **(there or {})},
        },
    }


def looked(nodes: Sequence[Object], needs: ClusterNeeds) -> dict[str, Check]:
    return {one.name: one for one in checks_of(nodes, needs)}


def test_a_cluster_without_tiers_fails_and_is_told_how_to_label() -> None:
    found = looked([node("a", {})], ClusterNeeds())

    assert found["tiers"].state == "fail"
    assert found["tiers"].detail == "none of the 1 nodes carries the label circinus.io/tier"
    assert found["tiers"].remedy == "kubectl label node NAME circinus.io/tier=TIER"
    assert found["other nodes"].detail == "1 are of no tier: a"


def test_each_node_that_does_not_count_has_its_reason() -> None:
    taint = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}
    nodes = [
        node("good"),
        node("cordoned", spec={"unschedulable": True}),
        node("silent", ready=False),
        node("small", there={"cpu": "500m"}),
        node("tainted", spec={"taints": [taint]}),
    ]

    found = looked(nodes, ClusterNeeds(tiers={"edge": 1}))["tier edge"]

    assert found.state == "ok"
    assert found.detail == (
        "1 of 5 nodes count as machines: good; cordoned is cordoned; silent is not ready; "
        "small has 500m cpu to give where 1 is asked for; "
        "tainted has the taint gpu=yes:NoSchedule, which our pods do not tolerate"
    )


def test_a_tier_without_a_machine_fails_and_says_what_to_do() -> None:
    taint = {"key": "gpu", "effect": "NoSchedule"}
    nodes = [node("a", spec={"taints": [taint]})]
    needs = ClusterNeeds(tiers={"edge": 1, "cloud/large": 2, "cloud/small": 0})

    found = looked(nodes, needs)

    assert found["tier edge"].state == found["tier cloud/large"].state == "fail"
    assert "deployment.podTemplate.spec.tolerations" in found["tier edge"].remedy
    assert found["tier cloud/large"].remedy == (
        "kubectl label node NAME circinus.io/tier=cloud circinus.io/machine-type=large"
    )
    assert found["tier cloud/small"].state == "note"  # none are stated
    tolerated = ClusterNeeds(tiers={"edge": 1}, tolerations=({"operator": "Exists"},))
    assert looked(nodes, tolerated)["tier edge"].state == "ok"


def test_where_no_plan_runs_as_pods_nodes_are_not_needed() -> None:
    found = looked([], ClusterNeeds(tiers={"edge": 1}, deploys=False))

    assert found["tier edge"].state == "note"


def test_fewer_machines_than_are_stated_are_noted_unless_they_are_counted() -> None:
    nodes = [node("a"), node("b", {TIER: "cloud", MACHINE_TYPE: "l"})]
    tiers = {"edge": 2, "cloud/l": 1}

    stated = looked(nodes, ClusterNeeds(tiers=tiers, discovers=False))
    counted = looked(nodes, ClusterNeeds(tiers=tiers))

    assert stated["tier edge"].state == "note"
    assert stated["tier edge"].detail.endswith("; the infrastructure says 2")
    assert stated["tier cloud/l"].state == counted["tier edge"].state == "ok"


def test_tiers_are_those_that_labels_name_where_none_are_given() -> None:
    assert looked([node("a"), node("b", "cloud")], ClusterNeeds()).keys() == {
        "tier cloud",
        "tier edge",
        "GPUs",
    }


def test_gpus_are_told_by_their_resources() -> None:
    shared = {"nvidia.com/gpu.shared": "10"}
    nodes = [
        node("a", there=shared),
        node("b", there=shared),
        node("c", there={"nvidia.com/gpu": "1"}),
    ]

    assert looked(nodes, ClusterNeeds())["GPUs"] == Check(
        "GPUs", "ok", "1 nvidia.com/gpu, 20 nvidia.com/gpu.shared"
    )
    assert looked([node("a")], ClusterNeeds())["GPUs"].detail == "none: plans use CPUs"


def test_a_gpu_that_no_pod_can_ask_for_is_noted() -> None:
    bare = node("a", {TIER: "edge", "nvidia.com/gpu.present": "true"})

    found = looked([bare], ClusterNeeds())["GPUs"]

    assert found.state == "note"
    assert found.detail == "none offered; a has some that pods cannot ask for"


def test_of_many_nodes_some_are_named() -> None:
    found = looked([node(f"n{i}") for i in range(9)], ClusterNeeds())["tier edge"]

    assert found.detail == "9 of 9 nodes count as machines: n0, n1, n2, n3, n4 and 4 more"


def test_a_tier_whose_nodes_a_node_pool_makes_needs_none_yet() -> None:
    values = {
        "deployment": {"target": "kubernetes"},
        "nodePools": [{"tier": "edge"}, {"tier": "cloud", "machineType": "large"}],
    }
    rented = needs_of(values, namespace="n", installs=True).rented
    assert rented == {"edge", "cloud/large"}
    needs = ClusterNeeds(tiers={"edge": 1, "cloud/large": 2, "cloud/small": 1}, rented=rented)

    found = looked([], needs)

    assert found["tier edge"].state == found["tier cloud/large"].state == "ok"
    assert "its NodePool makes nodes for pods that wait" in found["tier edge"].detail
    assert found["tier cloud/small"].state == "fail"
