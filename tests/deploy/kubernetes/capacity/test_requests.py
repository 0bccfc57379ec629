"""What a pod asks for is the most that runs of it at once."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from circinus.deploy.kubernetes.api import Object
from circinus.deploy.kubernetes.capacity.requests import requested


def container(cpu_m: int, *, memory_mi: int = 0, sidecar: bool = False) -> Object:
    asked = {"cpu": f"{cpu_m}m", "memory": f"{memory_mi}Mi"}
    return {
        "resources": {"requests": asked},
        **({"restartPolicy": "Always"} if sidecar else {}),
    }


def cpu_m(pod: Object) -> Decimal:
    return requested(pod)["cpu"] * 1000


def test_a_pod_that_asks_for_nothing_takes_a_place() -> None:
    assert requested({}) == {"pods": 1}
    assert requested({"containers": [{}], "initContainers": [{"resources": {}}]}) == {"pods": 1}


def test_an_init_container_counts_only_beyond_what_runs_later() -> None:
    containers = [container(200), container(300)]
    assert cpu_m({"containers": containers, "initContainers": [container(400)]}) == 500
    assert cpu_m({"containers": containers, "initContainers": [container(700)]}) == 700
    # One after the other: not their sum.
    assert cpu_m({"containers": containers, "initContainers": [container(700)] * 3}) == 700


def test_each_resource_has_its_own_most() -> None:
    init = container(100, memory_mi=900)
    found = requested({"containers": [container(400, memory_mi=50)], "initContainers": [init]})
    assert found == {"cpu": Decimal("0.4"), "memory": 900 * 2**20, "pods": 1}


def test_a_sidecar_runs_beside_all_that_comes_later_and_nothing_before() -> None:
    sidecar, late = container(200, sidecar=True), container(900)
    assert cpu_m({"containers": [container(500)], "initContainers": [sidecar]}) == 700
    assert cpu_m({"containers": [container(500)], "initContainers": [sidecar, late]}) == 1100
    assert cpu_m({"containers": [container(500)], "initContainers": [late, sidecar]}) == 900


def test_the_overhead_of_the_pod_comes_on_top() -> None:
    pod = {"containers": [container(500)], "overhead": {"cpu": "250m", "memory": "120Mi"}}
    assert requested(pod) == {"cpu": Decimal("0.75"), "memory": 120 * 2**20, "pods": 1}


def test_what_is_asked_for_the_whole_pod_goes_before_its_containers() -> None:
    pod = {
        "resources": {"requests": {"cpu": "2"}},
        "containers": [container(500, memory_mi=10)],
        "overhead": {"cpu": "100m"},
    }
    assert requested(pod) == {"cpu": Decimal("2.1"), "memory": 10 * 2**20, "pods": 1}


amounts = st.integers(0, 20)
starting = st.lists(st.tuples(amounts, st.booleans()), max_size=6)


@given(starting, st.lists(amounts, max_size=4), amounts)
def test_it_is_the_most_of_all_moments_in_its_life(
    inits: list[tuple[int, bool]], running: list[int], overhead: int
) -> None:
    """The oracle lives through it: what runs at each moment is written down and summed."""
    moments: list[list[int]] = []
    going_on: list[int] = []
    for amount, sidecar in inits:
        moments.append([*going_on, amount])
        if sidecar:
            going_on.append(amount)
    moments.append([*going_on, *running])
    pod: dict[str, Any] = {
        "initContainers": [container(amount, sidecar=sidecar) for amount, sidecar in inits],
        "containers": [container(amount) for amount in running],
        "overhead": {"cpu": f"{overhead}m"},
    }

    assert cpu_m(pod) == max(map(sum, moments)) + overhead
