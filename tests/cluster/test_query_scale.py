"""The scale subresource of a query, as HPA and KEDA drive it, is obeyed and plans nothing anew."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cluster.api import eventually
from tests.cluster.test_operator import Operated, operated  # noqa: F401 - a fixture

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]
REPLICAS = 2


def test_a_scaled_query_has_as_many_replicas_and_is_the_same_query(
    operated: Operated,  # noqa: F811
) -> None:
    api, path = operated.cluster.api, f"{operated.objects}/scaled"
    limits = {"profiling_s": 60.0, "configurations": 4}
    operated.create("scaled", limits=limits, replicas=1)  # without a number there is no scale
    before = operated.wait_for("scaled", phase="serving")

    def scale() -> dict[str, Any]:
        return api.get(f"{path}/scale") or {}

    eventually(lambda: scale()["status"]["replicas"] == 1, "one replica told", timeout_s=30)
    assert scale()["status"]["selector"].startswith(f"circinus.io/query={before['queryId']},")

    api.merge(f"{path}/scale", {"spec": {"replicas": REPLICAS}})
    eventually(lambda: scale()["status"]["replicas"] == REPLICAS, "two replicas", timeout_s=60)
    status = operated.wait_for("scaled", phase="serving", observedGeneration=2)
    assert (status["queryId"], status["planId"]) == (before["queryId"], before["planId"])
    deployment = operated.service.query(status["queryId"])["deployment"]
    assert len(deployment["instances"]) == REPLICAS * len(tiers_of(deployment))

    with pytest.raises(RuntimeError, match=r"spec\.replicas"):
        api.merge(f"{path}/scale", {"spec": {"replicas": 0}})

    api.merge(path, {"spec": {"replicas": None}})  # they follow the rate again: nobody asks
    operated.wait_for("scaled", replicas=1, queryId=before["queryId"])
    assert operated.service.query(before["queryId"])["replicas"] is None
    api.delete(path)
    eventually(lambda: api.get(path) is None, "the object to go", timeout_s=60)


def tiers_of(deployment: dict[str, Any]) -> set[str]:
    return {instance["tier"] for instance in deployment["instances"]}
