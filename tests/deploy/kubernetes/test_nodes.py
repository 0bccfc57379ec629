"""Machines are the nodes that can be used, tier by tier."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from kubernetes.client import ApiClient, Configuration

from circinus.deploy.kubernetes.api import Cluster, Object
from circinus.deploy.kubernetes.names import MACHINE_TYPE, TIER
from circinus.deploy.kubernetes.nodes import Discovery, machines_of, why_no_machine
from circinus.pipelines.errors import Unavailable


def node(
    name: str,
    tier: str | None = "edge",
    *,
    ready: str = "True",
    cordoned: bool = False,
    kind: str | None = None,
) -> Object:
    labels = {} if tier is None else {TIER: tier}
    if kind is not None:
        labels[MACHINE_TYPE] = kind
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {"unschedulable": True} if cordoned else {},
        "status": {
            "conditions": [
                {"type": "MemoryPressure", "status": "False"},
                {"type": "Ready", "status": ready},
            ],
            "allocatable": {"cpu": "1500m", "memory": "2Gi"},
        },
    }


def tainted() -> Object:
    taint = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}
    return {**node("t"), "spec": {"taints": [taint]}}


@pytest.mark.parametrize(
    ("lost", "why"),
    [
        (node("n", ready="False"), "is not ready"),
        (node("n", ready="Unknown"), "is not ready"),
        (node("n", cordoned=True), "is cordoned"),
        ({"metadata": {"name": "n", "labels": {TIER: "edge"}}}, "is not ready"),
        (
            {**node("n"), "metadata": {**node("n")["metadata"], "deletionTimestamp": "2026"}},
            "is being removed",
        ),
        (tainted(), "has the taint gpu=yes:NoSchedule, which our pods do not tolerate"),
    ],
    ids=["not ready", "silent", "cordoned", "new", "leaving", "tainted"],
)
def test_a_node_that_takes_no_pods_is_no_machine_and_says_why(lost: Object, why: str) -> None:
    assert why_no_machine(lost) == why
    assert machines_of([lost, node("good")], ["edge"]) == {"edge": 1}


def test_a_tainted_node_is_a_machine_for_pods_that_tolerate_it() -> None:
    tolerated = [{"key": "gpu", "operator": "Exists"}]
    assert machines_of([tainted(), node("n")], ["edge"], tolerations=tolerated) == {"edge": 2}
    assert machines_of([tainted()], ["edge"], {"cpu": "2"}, tolerated) == {"edge": 0}  # too small


def test_machines_are_counted_by_tier_and_strangers_are_not() -> None:
    nodes = [node("a"), node("b"), node("c", "cloud"), node("d", None), node("e", "moon")]
    assert machines_of(nodes, ["device", "edge", "cloud"]) == {"device": 0, "edge": 2, "cloud": 1}


def test_machines_of_a_tier_with_types_are_counted_by_type() -> None:
    nodes = [node(name, kind="large") for name in "ab"] + [node("c", kind="odd"), node("d")]
    assert machines_of(nodes, ["edge/small", "edge/large"]) == {"edge/small": 0, "edge/large": 2}
    assert machines_of(nodes, ["edge"]) == {"edge": 4}


@pytest.mark.parametrize(("cpu", "count"), [("1500m", 1), ("1501m", 0)])
def test_a_node_must_have_what_a_machine_needs(cpu: str, count: int) -> None:
    assert machines_of([node("a")], ["edge"], {"cpu": cpu}) == {"edge": count}


def test_a_resource_that_a_node_does_not_have_is_none() -> None:
    assert machines_of([node("a")], ["edge"], {"nvidia.com/gpu": "1"}) == {"edge": 0}


def test_a_change_is_told_once_and_again_until_it_was_taken() -> None:
    told: list[Mapping[str, int]] = []
    down = [True]

    def tell(machines: Mapping[str, int]) -> None:
        told.append(machines)
        if down[0]:
            raise Unavailable("locked", retry_after_s=1.0)

    nowhere = Cluster(ApiClient(Configuration(host="http://x")))
    discovery = Discovery(cluster=nowhere, tiers=("edge",), report=tell)
    discovery.ingest({"a": node("a")})
    down[0] = False
    discovery.ingest({"a": node("a")})
    discovery.ingest({"a": node("a")})
    discovery.ingest({"a": node("a", cordoned=True)})
    assert told == [{"edge": 1}, {"edge": 1}, {"edge": 0}]


def test_what_is_told_counts_what_our_pods_tolerate() -> None:
    told: list[Mapping[str, int]] = []
    nowhere = Cluster(ApiClient(Configuration(host="http://x")))
    for tolerations in ((), ({"key": "gpu", "operator": "Exists"},)):
        Discovery(
            cluster=nowhere, tiers=("edge",), report=told.append, tolerations=tolerations
        ).ingest({"t": tainted(), "n": node("n")})
    assert told == [{"edge": 1}, {"edge": 2}]


def test_a_machine_has_what_is_told_of_its_own_tier_or_type() -> None:
    edge = node("a"), node("b")
    edge[1]["status"]["allocatable"]["nvidia.com/gpu.shared"] = "10"
    gpus = {"nvidia.com/gpu.shared": "10"}
    usual = {"cpu": "1"}

    assert machines_of(edge, ["edge"], usual, own={"edge": gpus}) == {"edge": 1}
    assert machines_of(edge, ["edge"], usual, own={"cloud": gpus}) == {"edge": 2}
    assert machines_of(edge, ["edge"], usual, own={"edge": {"cpu": "2"}}) == {"edge": 0}
    small = node("c", kind="small")
    assert machines_of([small], ["edge/small"], own={"edge/small": gpus}) == {"edge/small": 0}
