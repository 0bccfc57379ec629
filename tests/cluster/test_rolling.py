"""Service, dispatchers and workers are upgraded on real nodes while requests come.

A machine that is three nodes, and serves 20 requests a second while all starts anew on it, has to
be quiet: `CIRCINUS_TEST_ROLLING=1` says that it is.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from circinus.api.http.payload_json import payload_to_json
from circinus.api.schemas.plans import PlanView
from circinus.deploy.kubernetes.launcher import ready_addresses
from circinus.pipelines.model.configuration import ConfigurationSpace
from circinus.pipelines.registry import load_pipeline
from tests.cluster import images
from tests.cluster.api import eventually
from tests.cluster.cluster import Cluster
from tests.cluster.demonstration import QUERY
from tests.cluster.relay import relay
from tests.cluster.release import RELEASE, Release, installed
from tests.cluster.requirements import not_here
from tests.e2e.dispatching import SteadyLoad

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(
        "CIRCINUS_TEST_ROLLING" not in os.environ, reason="needs a quiet machine, see above"
    ),
]
DISPATCHERS = "app.kubernetes.io/component=dispatcher"
SERVICE = "app.kubernetes.io/component=service"
WORKERS = "app.kubernetes.io/component=worker"
PORT = 8350
EXAMPLES = 20
PER_S = 20.0
ROLLED_S = 300.0


@pytest.fixture(scope="module")
def release(real_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Release]:
    lacking = images.missing()
    if lacking:
        not_here(lacking)
    control = real_cluster.control
    assert control is not None

    def service() -> list[tuple[str, int]]:
        """Where it listens, ready or not."""
        path = "/api/v1/pods"
        pods = real_cluster.api.items(path, labelSelector=SERVICE)
        staying = (pod for pod in pods if not pod["metadata"].get("deletionTimestamp"))
        ips = (pod["status"].get("podIP") for pod in staying)
        return [(str(ip), PORT) for ip in ips if ip]

    with relay(control.address, service) as port:
        dispatchers = {
            "replicas": 2,
            "serviceUrl": f"http://{control.address}:{port}",
            "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}},
        }
        try:
            folder = tmp_path_factory.mktemp("rolling")
            with installed(real_cluster, folder, {"dispatchers": dispatchers}) as release:
                yield release
        except images.NoImages as error:
            not_here(str(error))


def test_no_request_fails_while_everything_is_upgraded(
    release: Release, capsys: pytest.CaptureFixture[str]
) -> None:
    query_id, plan = deployed(release)
    pipeline = load_pipeline("digits")
    assert pipeline.examples is not None
    chosen = ConfigurationSpace(pipeline.graph).parse(plan.configuration)
    inputs = [each.input for each in pipeline.examples(EXAMPLES, 11).examples]
    expected = [payload_to_json(pipeline.run(each, chosen)) for each in inputs]
    bodies = [{"input": payload_to_json(each), "late": "serve"} for each in inputs]

    with ready_dispatchers(release) as ready:
        eventually(lambda: len(ready()) == 2, "two dispatchers", timeout_s=ROLLED_S)
        load = SteadyLoad(
            ready=ready,
            path=f"/v1/queries/{query_id}/requests",
            body=lambda number: bodies[number % EXAMPLES],
            per_s=PER_S,
            headers={"Authorization": f"Bearer {release.token}"},
        )
        told: list[str] = []

        async def scene() -> None:
            async with load.running():
                await asyncio.sleep(3.0)
                for what, upgrade in (
                    ("service and dispatchers", upgrade_release),
                    ("workers", restart_workers),
                ):
                    before = load.sent
                    await asyncio.to_thread(upgrade, release)
                    await asyncio.sleep(3.0)
                    told.append(
                        f"{what}: {load.sent - before} requests, {len(load.failed)} failed"
                    )

        asyncio.run(scene())
    with capsys.disabled():
        sys.stdout.write("\n".join(["", *told, load.told(), *load.failed, ""]))
    assert load.failed == []
    wrong = [n for n, output in load.answers.items() if output != expected[n % EXAMPLES]]
    assert wrong == []


def deployed(release: Release) -> tuple[str, PlanView]:
    """Return a query that pods of two tiers serve at the rate that is sent, and its plan."""
    spec = {**QUERY["spec"], "request_rate_per_s": PER_S}
    with release.client() as client:
        query_id = client.submit(spec).id
        found = client.wait(query_id, timeout_s=ROLLED_S)
        assert found.phase == "serving", found
        return query_id, client.plan(client.deployment(query_id).plan_id or "")


@contextmanager
def ready_dispatchers(release: Release) -> Iterator[Callable[[], Sequence[str]]]:
    """Return a function that tells where the release leads requests, as a kube-proxy knows it."""
    path = f"/apis/discovery.k8s.io/v1/namespaces/{release.namespace}/endpointslices"
    found: list[str] = []
    over = threading.Event()

    def look() -> None:
        while not over.is_set():
            slices = release.cluster.api.items(
                path, labelSelector=f"kubernetes.io/service-name={RELEASE}"
            )
            addresses = ready_addresses(slices, "http").get(RELEASE, frozenset())
            found[:] = sorted(f"http://{address}" for _, address in addresses)
            over.wait(0.2)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield lambda: tuple(found)
    finally:
        over.set()
        thread.join()


def deployments(release: Release, selector: str = "") -> list[dict[str, Any]]:
    path = f"/apis/apps/v1/namespaces/{release.namespace}/deployments"
    query = {"labelSelector": selector} if selector else {}
    found: list[dict[str, Any]] = release.cluster.api.items(path, **query)
    return found


def is_rolled(deployment: dict[str, Any]) -> bool:
    """Whether all of it is of the latest kind and ready, and nothing else is left."""
    status, wanted = deployment["status"], deployment["spec"]["replicas"]
    figures = [status.get(name, 0) for name in ("replicas", "updatedReplicas", "readyReplicas")]
    latest = status.get("observedGeneration") == deployment["metadata"]["generation"]
    return bool(latest and figures == [wanted] * 3)


def upgrade_release(release: Release) -> None:
    """Another kind of pods for service and dispatchers at once, as a new version brings it."""
    release.upgrade(podAnnotations={"test/upgraded": "yes"})
    names = {RELEASE, f"{RELEASE}-dispatcher"}

    def rolled() -> bool:
        found = [d for d in deployments(release) if d["metadata"]["name"] in names]
        return len(found) == len(names) and all(map(is_rolled, found))

    eventually(rolled, "service and dispatchers upgraded", timeout_s=ROLLED_S)


def restart_workers(release: Release) -> None:
    """Another kind of pods for all workers at once."""
    note = {"metadata": {"annotations": {"test/restarted": "yes"}}}
    workers = deployments(release, WORKERS)
    assert workers
    for each in workers:
        path = f"/apis/apps/v1/namespaces/{release.namespace}/deployments"
        spec = {"spec": {"template": note}}
        release.cluster.api.merge(f"{path}/{each['metadata']['name']}", spec)

    def rolled() -> bool:
        return all(map(is_rolled, deployments(release, WORKERS)))

    eventually(rolled, "workers restarted", timeout_s=ROLLED_S)
