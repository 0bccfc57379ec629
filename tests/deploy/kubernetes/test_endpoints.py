"""Which workers are ready, from slices as clusters write them."""

from __future__ import annotations

from typing import Any

import pytest

from circinus.deploy.kubernetes.launcher import SERVICE_LABEL, ready_addresses


def piece(*endpoints: dict[str, Any], service: str | None = "s", port: str = "worker") -> Any:  # noqa: ANN401 - a JSON tree
    labels = {} if service is None else {SERVICE_LABEL: service}
    return {
        "metadata": {"name": "s-1", "labels": labels},
        "ports": [{"name": port, "port": 50051}],
        "endpoints": list(endpoints),
    }


def endpoint(pod: str, address: str, **conditions: bool) -> dict[str, Any]:
    target = {"kind": "Pod", "name": pod}
    return {"addresses": [address], "conditions": conditions, "targetRef": target}


@pytest.mark.parametrize(
    "lost",
    [
        piece(endpoint("p", "10.0.0.1", ready=False)),
        piece(endpoint("p", "10.0.0.1", ready=True, terminating=True)),
        piece(endpoint("p", "10.0.0.1", ready=True), port="other"),
        piece(endpoint("p", "10.0.0.1", ready=True), service=None),
        {"metadata": {"name": "s-1"}, "ports": None, "endpoints": None},
        {**piece(), "endpoints": None},
    ],
    ids=["not ready", "ending", "another port", "of no service", "empty", "no endpoints"],
)
def test_what_takes_no_requests_has_no_address(lost: dict[str, Any]) -> None:
    assert ready_addresses([lost], "worker") == {}


def test_endpoints_of_a_service_are_collected_over_its_slices_once_each() -> None:
    slices = [
        piece(endpoint("a", "10.0.0.1", ready=True), endpoint("b", "10.0.0.2")),
        piece(endpoint("a", "10.0.0.1", ready=True)),  # the cluster moves it between slices
        piece(endpoint("c", "fd00::1", ready=True), service="t"),
    ]
    assert ready_addresses(slices, "worker") == {
        "s": {("a", "10.0.0.1:50051"), ("b", "10.0.0.2:50051")},
        "t": {("c", "[fd00::1]:50051")},
    }
