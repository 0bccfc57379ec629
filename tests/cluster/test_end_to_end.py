"""A query as an object, from `kubectl apply` to right answers over the pod network."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from api.client import Client
from api.schemas import ExampleReference, RequestBody
from pipelines.configuration import ConfigurationSpace
from pipelines.payload import Payload
from pipelines.registry import load_pipeline
from tests.cluster import images
from tests.cluster.api import eventually
from tests.cluster.cluster import Cluster
from tests.cluster.release import Release, installed
from tests.cluster.requirements import not_here

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]
REQUESTS = 500
SEED = 11
QUERY = {
    "kind": "PipelineQuery",
    "apiVersion": "circinus.io/v1alpha1",
    "metadata": {"name": "reading"},
    "spec": {
        "pipeline": "digits",
        "data": {"examples": 60},
        "slo": {"accuracy": 0.6, "latency_s": 0.5},
        "limits": {"profiling_s": 5.0, "configurations": 10},
        "restrictions": {
            "tiers": {"sampler": {"only": ["device"]}, "classifier": {"only": ["cloud"]}}
        },
    },
}


@pytest.fixture(scope="module")
def release(real_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Release]:
    lacking = images.missing()
    if lacking:
        not_here(lacking)
    try:
        with installed(real_cluster, tmp_path_factory.mktemp("release")) as found:
            yield found
    except images.NoImages as error:
        not_here(str(error))


def objects(release: Release) -> str:
    return f"/apis/circinus.io/v1alpha1/namespaces/{release.namespace}/pipelinequeries"


def status_of(release: Release, name: str = "reading") -> dict[str, Any]:
    found = release.cluster.api.get(f"{objects(release)}/{name}") or {}
    status: dict[str, Any] = found.get("status", {})
    return status


def test_a_query_is_planned_deployed_over_two_tiers_and_answers_right(
    release: Release, capsys: pytest.CaptureFixture[str]
) -> None:
    release.cluster.api.create(objects(release), QUERY)
    eventually(
        lambda: status_of(release).get("phase") in ("serving", "infeasible", "failed"),
        "a query that is planned and deployed",
        timeout_s=400,
    )
    status = status_of(release)
    assert status["phase"] == "serving", status
    with release.client() as client:
        plan = client.plan(status["planId"])
        assert {"device", "cloud"} <= set(plan.placement.values())
        _check_pods(release, set(plan.placement.values()))
        latencies = _send(client, status["queryId"], plan.configuration)
        predicted = plan.latency_s
        told = (
            f"\n{REQUESTS} right answers over {sorted(set(plan.placement.values()))}; mean "
            f"latency predicted {predicted.value} s [{predicted.low}, {predicted.high}], "
            f"observed {np.mean(latencies):.4f} s (p95 {np.quantile(latencies, 0.95):.4f} s)\n"
        )
        with capsys.disabled():
            sys.stdout.write(told)
    release.cluster.api.delete(f"{objects(release)}/reading")
    eventually(lambda: not status_of(release), "the object gone", timeout_s=60)
    workers = f"/apis/apps/v1/namespaces/{release.namespace}/deployments"
    selector = "app.kubernetes.io/component=worker"
    eventually(
        lambda: not release.cluster.api.items(workers, labelSelector=selector),
        "no workers left",
        timeout_s=30,
    )


def _check_pods(release: Release, tiers: set[str]) -> None:
    path = f"/api/v1/namespaces/{release.namespace}/pods"
    pods = release.cluster.api.items(path, labelSelector="app.kubernetes.io/component=worker")
    where = {
        pod["metadata"]["labels"]["circinus.io/tier"]: pod["spec"]["nodeName"] for pod in pods
    }
    assert where == {tier: f"{tier}-real" for tier in tiers}


def _send(client: Client, query_id: str, configuration: dict[str, Any]) -> list[float]:
    """Send requests one by one; each must answer what the pipeline answers in this process."""
    pipeline = load_pipeline("digits")
    assert pipeline.examples is not None
    chosen = ConfigurationSpace(pipeline.graph).parse(configuration)
    examples = pipeline.examples(REQUESTS, SEED).examples
    latencies = []
    for index, example in enumerate(examples):
        reference = ExampleReference(index=index, seed=SEED, count=REQUESTS)
        reply = client.request(query_id, RequestBody(example=reference))
        expected: Payload = pipeline.run(example.input, chosen)
        assert reply.output == expected, f"request {index}"
        assert reply.score == pipeline.score_of(expected, example.expected)
        latencies.append(reply.latency_s)
    assert len(latencies) == REQUESTS
    return latencies
