from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from circinus.deploy.kubernetes.api import Object
from circinus.deploy.kubernetes.names import MACHINE, TIER
from circinus.deploy.kubernetes.nodes import free_of, shortage


def node(name: str, spec: Mapping[str, object] | None = None, *, pods: str = "10") -> Object:
    tier, machine = name.split("-")
    labels = {TIER: tier, MACHINE: machine}
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": spec or {},
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": pods}},
    }


def pod(on: str, cpu: str, *, group: str = "others", phase: str = "Running") -> Object:
    return {
        "metadata": {"name": "p", "labels": {"circinus.io/group": group}},
        "spec": {"nodeName": on, "containers": [{"resources": {"requests": {"cpu": cpu}}}]},
        "status": {"phase": phase},
    }


def deployment(cpu: str, labels: Mapping[str, str], replicas: int = 1, **more: object) -> Object:
    spec = {
        "nodeSelector": dict(labels),
        "containers": [{"resources": {"requests": {"cpu": cpu}}}],
        **more,
    }
    return {"metadata": {"name": "d"}, "spec": {"replicas": replicas, "template": {"spec": spec}}}


def on(tier: str, machine: int | None = None) -> Mapping[str, str]:
    return {TIER: tier} if machine is None else {TIER: tier, MACHINE: str(machine)}


def short(deployments: Sequence[Object], nodes: Sequence[Object], *pods: Object) -> str:
    return shortage(deployments, nodes, free_of(nodes, pods))


def test_a_tier_without_nodes_is_named() -> None:
    told = short([deployment("1", on("cloud"))], [node("edge-0")])

    assert told == "no node that takes pods carries circinus.io/tier=cloud (for d)."


@pytest.mark.parametrize(
    "spec",
    [
        {"unschedulable": True},
        {"taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]},
        {"taints": [{"key": "mine", "effect": "NoExecute"}]},
    ],
)
def test_a_node_that_takes_no_pods_has_no_room(spec: dict[str, object]) -> None:
    told = short([deployment("1", on("edge"))], [node("edge-0", spec)])

    assert told.startswith("no node that takes pods carries")


def test_a_taint_that_only_asks_to_stay_away_leaves_room() -> None:
    taint = {"key": "mine", "effect": "PreferNoSchedule"}

    assert short([deployment("1", on("edge"))], [node("edge-0", {"taints": [taint]})]) == ""


def test_a_taint_is_named_and_no_hindrance_for_pods_that_tolerate_it() -> None:
    taint = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}
    nodes = [node("edge-0", {"taints": [taint]})]
    tolerated = [{"key": "gpu", "operator": "Exists"}]

    told = short([deployment("1", on("edge"))], nodes)
    assert told == (
        "no node that takes pods carries circinus.io/tier=edge (for d). "
        "edge-0 has the taint gpu=yes:NoSchedule."
    )
    assert short([deployment("1", on("edge"), tolerations=tolerated)], nodes) == ""
    # What the one pod tolerates lets no other one in.
    both = [deployment("2", on("edge"), tolerations=tolerated), deployment("1", on("edge"))]
    assert "edge-0 has the taint" in short(both, nodes)


def test_init_containers_and_overhead_of_others_take_room() -> None:
    nodes, wanted = [node("edge-0")], [deployment("2", on("edge"))]
    other = pod("edge-0", "1")
    init = {"resources": {"requests": {"cpu": "3"}}}
    sidecar = {"resources": {"requests": {"cpu": "1500m"}}, "restartPolicy": "Always"}

    assert short(wanted, nodes, other) == ""
    for more in ({"initContainers": [init]}, {"initContainers": [sidecar]}):
        taken = {**other, "spec": {**other["spec"], **more}}
        assert "has 1" in short(wanted, nodes, taken)
    heavy = {**other, "spec": {**other["spec"], "overhead": {"cpu": "1001m"}}}
    assert "edge-0 has 1.999 left" in short(wanted, nodes, heavy)


def test_what_runs_counts_and_what_ended_or_goes_does_not() -> None:
    nodes = [node("edge-0")]
    wanted = [deployment("2", on("edge", 0))]

    assert "edge-0 has 1 left" in short(wanted, nodes, pod("edge-0", "3"))
    assert short(wanted, nodes, pod("edge-0", "3", phase="Succeeded")) == ""
    free = free_of(nodes, [pod("edge-0", "3", group="old")], without=["old"])
    assert shortage(wanted, nodes, free) == ""


def test_the_number_of_pods_is_limited_too() -> None:
    nodes = [node("edge-0", pods="2")]

    assert short([deployment("100m", on("edge"), 2)], nodes) == ""
    told = short([deployment("100m", on("edge"), 3)], nodes)
    assert "asks for 1 pods" in told


def test_a_kept_revision_that_says_nothing_of_nodes_has_room_anywhere() -> None:
    kept = deployment("1", {})
    del kept["spec"]["template"]["spec"]["nodeSelector"]

    assert short([kept], [node("edge-0")]) == ""
    assert short([kept], []) != ""


def test_replicas_spread_over_the_tier() -> None:
    # 3 cores twice: neither node has room for both.
    nodes = [node("edge-0"), node("edge-1")]

    assert short([deployment("3", on("edge"), 2)], nodes) == ""
    assert short([deployment("3", on("edge"), 3)], nodes) != ""


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3000)), max_size=6))
def test_bound_to_machines_it_fits_exactly_if_each_machine_has_the_sum(
    wanted: list[tuple[int, int]],
) -> None:
    nodes = [node(f"edge-{machine}") for machine in range(3)]
    deployments = [deployment(f"{milli}m", on("edge", machine)) for machine, milli in wanted]
    sums = [sum(milli for m, milli in wanted if m == machine) for machine in range(3)]

    assert (short(deployments, nodes) == "") == all(total <= 4000 for total in sums)
