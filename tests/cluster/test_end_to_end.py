"""A query as an object, from `kubectl apply` to right answers over the pod network."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import pytest
import yaml

from circinus.api.client import Client, Refused
from circinus.api.schemas.deployments import ExampleReference, Late, RequestBody
from circinus.pipelines.errors import CircinusError
from tests.api.cli.commands import invoke
from tests.cluster import images
from tests.cluster.api import eventually
from tests.cluster.cluster import Cluster
from tests.cluster.demonstration import (
    NAME,
    REQUESTS,
    SEED,
    compared,
    latencies_of_right_answers,
    objects,
    serving,
    status_of,
)
from tests.cluster.release import IMAGE, INFRASTRUCTURE, RELEASE, Release, helm, installed
from tests.cluster.requirements import not_here
from tests.cluster.rollouts import serves, watching
from tests.cluster.simulated import MACHINE_TYPE, TIER

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]
WORKERS = "app.kubernetes.io/component=worker"
VERIFIED = 40


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


def test_the_chart_brings_up_a_service_that_answers(release: Release) -> None:
    with release.client() as client:
        assert client.health() is not None
        assert client.infrastructure().name == INFRASTRUCTURE["name"]
    told = json.loads(helm(release.cluster, release.namespace, "status", RELEASE, "-o", "json"))
    assert told["info"]["status"] == "deployed"
    assert release.url.rpartition(":")[2] in told["info"]["notes"]
    with Client(release.url, token="wrong") as stranger, pytest.raises(Refused):
        stranger.infrastructure()


@pytest.fixture(scope="module")
def status(release: Release) -> dict[str, Any]:
    return serving(release, lambda _line: None)


def test_a_plan_over_two_tiers_answers_right_over_the_pod_network(
    release: Release, status: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    with release.client() as client:
        plan = client.plan(status["planId"])
        tiers = set(plan.placement.values())
        assert {"device", "cloud"} <= tiers
        assert nodes_of_workers(release) == {tier: f"{tier}-real" for tier in tiers}
        latencies = latencies_of_right_answers(client, status["queryId"], plan)
    assert len(latencies) == REQUESTS
    with capsys.disabled():
        sys.stdout.write(f"\n{compared(plan, latencies)}\n")


def test_a_generated_job_verifies_the_plan_from_inside(
    release: Release, status: dict[str, Any]
) -> None:
    options = ["--namespace", release.namespace, "--release", RELEASE, "--url", release.url]
    options += ["--image", IMAGE, "--pull-policy", "Never", "--requests", str(VERIFIED)]
    options += ["--environment", release.environment]
    printed = invoke("verify", status["queryId"], "--job", *options)
    assert printed.exit_code == 0, printed.output
    job = yaml.safe_load(printed.stdout)
    path = f"/apis/batch/v1/namespaces/{release.namespace}/jobs"
    release.cluster.api.create(path, job)

    def ended() -> dict[str, Any] | None:
        found = release.cluster.api.get(f"{path}/{job['metadata']['name']}") or {}
        state: dict[str, Any] = found.get("status", {})
        return state if state.get("succeeded") or state.get("failed") else None

    eventually(ended, "the end of the Job", timeout_s=240)
    told = log_of(release, job["metadata"]["name"])
    report = json.loads(told)
    # A busy machine may break the latency: then the Job has to say so.
    assert bool((ended() or {}).get("succeeded")) == report["worked"], told
    (query,) = report["queries"]
    assert query["observed"]["failed"] == 0
    assert query["plan_id"] == status["planId"]
    assert query["observed"]["requests"] == VERIFIED
    assert query["observed"]["mean_s"]["value"] > 0
    assert query["predicted"]["latency_s"]["value"] > 0


@pytest.fixture
def large(release: Release) -> Iterator[None]:
    """A machine of the cloud's other type: what is the edge's node otherwise."""
    api, node = release.cluster.api, "/api/v1/nodes/edge-real"
    api.merge(node, {"metadata": {"labels": {TIER: "cloud", MACHINE_TYPE: "large"}}})
    with release.client() as client:
        client.set_machines({"edge": 0, "cloud/large": 1})
        try:
            yield
        finally:
            client.set_machines({"edge": None, "cloud/large": None})
            api.merge(node, {"metadata": {"labels": {TIER: "edge", MACHINE_TYPE: None}}})


@pytest.mark.usefixtures("large")
def test_pods_of_a_pool_are_ready_on_nodes_of_their_types_before_others_end(
    release: Release, status: dict[str, Any]
) -> None:
    query_id, over = status["queryId"], Event()

    def is_on(**nodes: int) -> None:
        wanted = {f"{name}-real": count for name, count in nodes.items()}
        eventually(lambda: pods_on(release) == wanted, f"pods on {wanted}", timeout_s=120)

    with release.client() as client, ThreadPoolExecutor() as threads:
        asking = threads.submit(failures, release, query_id, over)
        try:
            is_on(cloud=1)
            with watching(release.cluster, release.namespace, ("device", "cloud")) as least:
                client.set_pool(query_id, {"cloud": {"large": 1}})
                is_on(edge=1)
                client.set_pool(query_id, {"cloud": {"small": 2, "large": 1}})
                is_on(cloud=2, edge=1)
                assert client.pool(query_id).state == "placed"
                client.drop_pool(query_id)
                is_on(cloud=1)
        finally:
            over.set()
        assert asking.result() == []
    assert min(least().values()) >= 1, least()


def test_a_worker_that_is_gone_is_replaced_and_requests_go_on(
    release: Release, status: dict[str, Any]
) -> None:
    query_id = status["queryId"]
    path = f"/api/v1/namespaces/{release.namespace}/pods"
    body = RequestBody(example=ExampleReference(index=0, seed=SEED, count=REQUESTS))
    with release.client() as client:
        before = {instance.address for instance in client.deployment(query_id).instances}
        (gone,) = [
            pod["metadata"]["name"]
            for pod in release.cluster.api.items(path, labelSelector=WORKERS)
            if pod["metadata"]["labels"]["circinus.io/tier"] == "cloud"
        ]
        release.cluster.api.delete(f"{path}/{gone}")

        def answered_by_another() -> bool:
            now = {instance.address for instance in client.deployment(query_id).instances}
            if len(now) < len(before) or now == before:
                return False
            try:
                return client.request(query_id, body).output is not None
            except CircinusError:
                return False

        eventually(answered_by_another, "an answer by another pod", timeout_s=240)


def test_a_deleted_object_leaves_no_workers(release: Release, status: dict[str, Any]) -> None:
    assert status_of(release)["queryId"] == status["queryId"]
    release.cluster.api.delete(f"{objects(release)}/{NAME}")
    eventually(lambda: not status_of(release), "the object gone", timeout_s=60)
    path = f"/apis/apps/v1/namespaces/{release.namespace}/deployments"
    eventually(
        lambda: not release.cluster.api.items(path, labelSelector=WORKERS),
        "no workers left",
        timeout_s=60,
    )


def nodes_of_workers(release: Release) -> dict[str, str]:
    """Return tier -> node of every worker's pod that is not on its way out."""
    path = f"/api/v1/namespaces/{release.namespace}/pods"
    pods = release.cluster.api.items(path, labelSelector=WORKERS)
    staying = [pod for pod in pods if not pod["metadata"].get("deletionTimestamp")]
    return {
        pod["metadata"]["labels"]["circinus.io/tier"]: pod["spec"]["nodeName"] for pod in staying
    }


def pods_on(release: Release) -> Counter[str]:
    """Return node -> pods of the cloud's workers there; nothing while one starts or ends."""
    path = f"/api/v1/namespaces/{release.namespace}/pods"
    pods = release.cluster.api.items(path, labelSelector=f"{WORKERS},{TIER}=cloud")
    if not all(map(serves, pods)):
        return Counter()
    return Counter(pod["spec"]["nodeName"] for pod in pods)


def failures(release: Release, query_id: str, over: Event) -> list[str]:
    """Send requests, one after the other, until it is over; give why some got no answer."""
    body = RequestBody(example=ExampleReference(index=0), late=Late.SERVE)
    found = []
    with release.client() as client:
        while not over.is_set():
            try:
                client.request(query_id, body)
            except CircinusError as error:
                found.append(str(error))
    return found


def log_of(release: Release, job: str) -> str:
    """Return the log of a Job's pod."""
    path = f"/api/v1/namespaces/{release.namespace}/pods"
    (pod,) = release.cluster.api.items(path, labelSelector=f"batch.kubernetes.io/job-name={job}")
    return release.cluster.api.text(f"{path}/{pod['metadata']['name']}/log")
