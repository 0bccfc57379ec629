from __future__ import annotations

import pytest

from circinus.deploy.kubernetes.api import Absent, Clash, ClusterRefused, Forbidden, Object
from circinus.deploy.kubernetes.diagnosis import replica_failure, why_not_ready, with_remedy


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (Forbidden("PATCH", "Forbidden", "exceeded quota: small"), "raise the ResourceQuota"),
        (Clash("PATCH", "Conflict", "conflict with somebody"), "`--force` takes the fields over"),
        (Forbidden("GET", "Forbidden", 'User "x" cannot list pods'), "needs a role"),
        (Absent("GET", "NotFound", 'namespaces "x" not found'), "create the namespace first"),
        (Forbidden("PATCH", "Forbidden", "namespace x is being terminated"), "create the name"),
    ],
)
def test_a_refusal_says_what_can_be_done(error: ClusterRefused, remedy: str) -> None:
    words = with_remedy(error)
    assert words.startswith(f"{error} (")
    assert remedy in words


@pytest.mark.parametrize(
    "error",
    [
        Forbidden("PATCH", "Forbidden", "a webhook denied the request"),
        ClusterRefused("PATCH", "Invalid", "spec: invalid"),
        Absent("GET", "NotFound", 'services "x" not found'),
    ],
)
def test_where_nothing_is_known_the_refusal_stands_alone(error: ClusterRefused) -> None:
    assert with_remedy(error) == str(error)


def deployment(message: str | None) -> Object:
    condition = {"type": "ReplicaFailure", "status": "True", "message": message}
    conditions = [] if message is None else [condition]
    return {"metadata": {"name": "d"}, "spec": {}, "status": {"conditions": conditions}}


def test_pods_that_are_not_made_have_a_reason() -> None:
    assert replica_failure(deployment("exceeded quota: small")) == "d: exceeded quota: small"
    assert replica_failure(deployment(None)) == ""


def pod(**status: object) -> Object:
    return {"metadata": {"name": "p"}, "status": status}


@pytest.mark.parametrize(
    ("status", "line"),
    [
        (
            {"conditions": [{"type": "PodScheduled", "status": "False", "message": "0/3 nodes"}]},
            "pod p finds no node: 0/3 nodes",
        ),
        (
            {"containerStatuses": [{"state": {"waiting": {"reason": "ErrImagePull"}}}]},
            "pod p waits: ErrImagePull",
        ),
        (
            {"containerStatuses": [{"state": {"terminated": {"exitCode": 1, "reason": "Error"}}}]},
            "pod p ended with code 1: Error",
        ),
        (
            {"containerStatuses": [{"state": {"running": {"startedAt": "2026"}}}]},
            "pod p runs, but is not ready yet",
        ),
        ({}, "its pods are ready, but do not answer"),
    ],
)
def test_a_pod_that_is_not_ready_has_a_reason(status: dict[str, object], line: str) -> None:
    assert why_not_ready([pod(**status)]) == line


def test_no_pod_at_all_has_a_reason() -> None:
    assert why_not_ready([]).startswith("there is no pod: the cluster made none")
