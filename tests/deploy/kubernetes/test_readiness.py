from __future__ import annotations

from typing import Any

import pytest

from circinus.deploy.kubernetes.api import Object
from circinus.deploy.kubernetes.outcome import (
    State,
    failure_of,
    is_ready,
    ready_replicas,
    why_waiting,
)

GOOD = {"observedGeneration": 3, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2}


def deployment(**status: Any) -> Object:  # noqa: ANN401 - a status is any JSON
    return {
        "metadata": {"name": "d", "generation": 3},
        "spec": {"replicas": 2},
        "status": status,
    }


def failing(message: str) -> Object:
    condition = {"type": "ReplicaFailure", "status": "True", "message": message}
    return deployment(conditions=[condition])


def pod(**status: Any) -> Object:  # noqa: ANN401
    return {"metadata": {"name": "p"}, "status": status}


@pytest.mark.parametrize(
    "status",
    [
        {},
        {**GOOD, "observedGeneration": 2},  # of the template before
        {**GOOD, "availableReplicas": 1},
        {**GOOD, "replicas": 3},  # an old one still runs
        {**GOOD, "updatedReplicas": 1},
    ],
)
def test_it_is_not_ready(status: dict[str, int]) -> None:
    assert not is_ready(deployment(**status))


def test_it_is_ready_when_all_replicas_are_the_newest_and_available() -> None:
    assert is_ready(deployment(**GOOD))
    assert ready_replicas([deployment(**GOOD), deployment(availableReplicas=1)]) == (3, 4)


def test_pods_that_are_not_made_are_a_quota_or_a_refusal() -> None:
    quota = failure_of(failing('pods "x" is forbidden: exceeded quota: small'))
    other = failure_of(failing("admission webhook denied the request"))

    assert quota is not None
    assert quota[0] is State.QUOTA
    assert other == (State.REFUSED, "d: admission webhook denied the request")
    assert failure_of(deployment(**GOOD)) is None


def test_an_unschedulable_pod_tells_before_others() -> None:
    waiting = pod(containerStatuses=[{"state": {"waiting": {"reason": "ErrImagePull"}}}])
    condition = {"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}

    assert why_waiting([waiting]) == (State.TIMED_OUT, "p: ErrImagePull")
    assert why_waiting([waiting, pod(conditions=[condition])]) == (
        State.UNSCHEDULABLE,
        "p: 0/3 nodes are available",
    )


def test_a_container_that_runs_and_is_not_ready_is_told() -> None:
    assert why_waiting([pod(containerStatuses=[{"state": {"running": {}}}])]) == (
        State.TIMED_OUT,
        "p: it runs and is not ready",
    )
    assert why_waiting([]) == (State.TIMED_OUT, "no pod says why")
