"""What a cluster gives of each unit, by conditions and events made by hand."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from circinus.deploy.kubernetes.api import Object
from circinus.deploy.kubernetes.routing.capacity import ClusterState, UnitState, unit_states
from circinus.deploy.kubernetes.routing.targets import ClusterRoute
from tests.deploy.kubernetes.routes_in_a_cluster import (
    claim,
    cluster_route,
    deployment,
    pod,
    pool,
    refusal,
    target,
    unit,
)

LATER = "2026-01-01T00:00:09Z"
DEPLOYMENTS = {"m-cheap": deployment("m-cheap"), "m-dear": deployment("m-dear", 1)}
ONE_WAITS = (pod("m-cheap", 0), pod("m-cheap", 1, placed=False))
WITH_POOL = cluster_route(targets={"cheap": target("cheap", node_pool=pool("p"))})
NOT_LAUNCHED = {
    "type": "Launched",
    "status": "False",
    "reason": "InsufficientCapacity",
    "message": "no inf2.xlarge",
}
AWAITING = {"type": "Launched", "status": "Unknown", "reason": "AwaitingReconciliation"}
ONE_ANSWERS = UnitState(available=None, ready=1, templates=frozenset({"5d5"}))


def cheap(
    route: ClusterRoute, *pods: Object, at_s: float = 0.0, seen: ClusterState | None = None
) -> UnitState:
    found = seen or ClusterState(deployments=DEPLOYMENTS)
    return unit_states(route, replace(found, pods=[*found.pods, *pods]), at_s)["cheap"]


def test_a_unit_without_a_deployment_cannot_be_had() -> None:
    found = cheap(cluster_route(), seen=ClusterState(deployments={}))
    assert found == UnitState(available=0, why="there is no Deployment m-cheap")


def test_a_pod_without_a_node_cannot_be_had_and_says_why() -> None:
    found = cheap(cluster_route(), *ONE_WAITS)
    assert (found.available, found.ready) == (1, 1)
    assert found.why == "1 of 2 pods find no node: 0/3 nodes are available: 3 Insufficient cpu."


def test_a_quota_that_makes_no_pods_is_a_lack() -> None:
    words = 'pods "m-cheap-5d5" is forbidden: exceeded quota: gpus'
    refused = {"type": "ReplicaFailure", "status": "True", "message": words}
    seen = ClusterState(deployments={"m-cheap": deployment("m-cheap", 2, refused)})
    found = cheap(cluster_route(), pod("m-cheap"), seen=seen)
    assert (found.available, found.why) == (1, f"m-cheap: {words}")


def test_a_node_claim_that_is_not_launched_is_a_lack_before_any_pod_waits() -> None:
    seen = ClusterState(deployments=DEPLOYMENTS, claims=[claim("p", NOT_LAUNCHED)])
    found = cheap(WITH_POOL, pod("m-cheap"), seen=seen)
    assert (found.available, found.why) == (1, "p-abcde: InsufficientCapacity: no inf2.xlarge")


@pytest.mark.parametrize(
    ("condition", "lacks"),
    [
        (NOT_LAUNCHED | {"status": "Unknown"}, True),
        (NOT_LAUNCHED | {"status": "Unknown", "reason": "LaunchFailed"}, True),
        (NOT_LAUNCHED | {"status": "True", "reason": "Launched"}, False),
        (AWAITING, False),
    ],
)
def test_a_claim_lacks_only_when_it_says_so(condition: Object, lacks: bool) -> None:
    seen = ClusterState(deployments=DEPLOYMENTS, claims=[claim("p", condition)])
    assert (cheap(WITH_POOL, *ONE_WAITS, seen=seen).available == 1) is lacks


def test_claims_of_another_pool_and_claims_that_end_say_nothing() -> None:
    ending = claim("p", NOT_LAUNCHED)
    ending["metadata"]["deletionTimestamp"] = LATER
    seen = ClusterState(deployments=DEPLOYMENTS, claims=[claim("q", NOT_LAUNCHED), ending])
    assert cheap(WITH_POOL, pod("m-cheap"), seen=seen) == ONE_ANSWERS


def test_while_karpenter_makes_a_node_a_waiting_pod_can_be_had() -> None:
    seen = ClusterState(
        deployments=DEPLOYMENTS, claims=[claim("p", AWAITING)], waiting_since={"m-cheap-1": 0.0}
    )
    assert cheap(WITH_POOL, *ONE_WAITS, seen=seen, at_s=100.0).available is None


def test_a_claim_whose_node_is_there_helps_no_pod_that_waits() -> None:
    there = claim("p", {"type": "Initialized", "status": "True"})
    seen = ClusterState(deployments=DEPLOYMENTS, claims=[there], waiting_since={"m-cheap-1": 0.0})
    assert cheap(WITH_POOL, *ONE_WAITS, seen=seen, at_s=3.0).available == 1


def test_a_pod_of_a_pool_waits_for_karpenter_to_begin_and_no_longer() -> None:
    seen = ClusterState(deployments=DEPLOYMENTS, waiting_since={"m-cheap-1": 10.0})
    before = cheap(WITH_POOL, *ONE_WAITS, seen=seen, at_s=12.75)
    after = cheap(WITH_POOL, *ONE_WAITS, seen=seen, at_s=13.0)
    assert (before.available, before.again_s) == (None, 13.0)
    assert (after.available, after.again_s) == (1, inf)


def test_karpenters_refusal_ends_the_wait_at_once() -> None:
    seen = ClusterState(
        deployments=DEPLOYMENTS,
        refusals=[refusal("p")],
        waiting_since={"m-cheap-1": 10.0},
    )
    found = cheap(WITH_POOL, *ONE_WAITS, seen=seen, at_s=10.0)
    assert found.available == 1
    assert found.why.endswith("(NodeClaim r event: all requested instance types were unavailable)")


@pytest.mark.parametrize(
    "event",
    [refusal("p", at="2025-12-31T23:59:59Z"), refusal("q"), refusal("p-q")],
    ids=["before the pod", "of another pool", "of a pool whose name goes on"],
)
def test_a_refusal_of_others_says_nothing(event: Object) -> None:
    seen = ClusterState(
        deployments=DEPLOYMENTS, refusals=[event], waiting_since={"m-cheap-1": 10.0}
    )
    assert cheap(WITH_POOL, *ONE_WAITS, seen=seen, at_s=10.0).available is None


def test_a_claim_made_after_a_refusal_may_succeed() -> None:
    seen = ClusterState(
        deployments=DEPLOYMENTS,
        refusals=[refusal("p")],
        claims=[claim("p", AWAITING, at=LATER)],
        waiting_since={"m-cheap-1": 0.0},
    )
    assert cheap(WITH_POOL, *ONE_WAITS, seen=seen, at_s=10.0).available is None


def test_pods_that_end_or_are_of_others_do_not_count() -> None:
    ending, over, other = pod("m-cheap", 1, placed=False), pod("m-cheap", 2), pod("m-dear")
    ending["metadata"]["deletionTimestamp"] = LATER
    over["status"]["phase"] = "Failed"
    foreign = pod("m-cheap", 3, placed=False)
    foreign["metadata"]["ownerReferences"] = [{"kind": "Job", "name": "m-cheap-5d5"}]
    found = cheap(cluster_route(), pod("m-cheap"), ending, over, other, foreign)
    assert found == ONE_ANSWERS


def node(ready: str) -> Object:
    return {
        "metadata": {"name": "n"},
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    }


@pytest.mark.parametrize("nodes", [{}, {"n": node("Unknown")}, {"n": node("False")}])
def test_pods_whose_node_is_gone_or_silent_are_lost_before_the_cluster_says_so(
    nodes: dict[str, Object],
) -> None:
    seen = ClusterState(deployments=DEPLOYMENTS, nodes=nodes)
    found = cheap(cluster_route(), pod("m-cheap", 0), pod("m-cheap", 1), seen=seen)
    why = "2 pods are on nodes that are gone or silent"
    assert found == UnitState(available=0, ready=0, why=why)


def test_a_pod_on_a_node_that_is_not_seen_yet_is_not_lost() -> None:
    seen = ClusterState(deployments=DEPLOYMENTS, nodes={})
    found = cheap(cluster_route(), pod("m-cheap", 0, ready=False), seen=seen)
    assert found == UnitState(available=None, ready=0)


def test_a_pod_that_starts_can_be_had_and_does_not_answer() -> None:
    found = cheap(cluster_route(), pod("m-cheap", 0, ready=False))
    assert found == UnitState(available=None, ready=0)


def test_more_than_the_route_says_can_be_had_is_not() -> None:
    route = cluster_route(unit("cheap", 0.5, available=1), unit("dear"))
    two = (pod("m-cheap", 0), pod("m-cheap", 1))
    assert cheap(route, *two).available == 1
    assert cheap(route, *two, pod("m-cheap", 2, placed=False)).available == 1


def test_a_rolling_update_whose_new_pod_waits_loses_nothing() -> None:
    found = cheap(cluster_route(), *ONE_WAITS, pod("m-cheap", 2))
    assert found.available == 2  # as many as the Deployment asks for
