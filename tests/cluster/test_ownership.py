"""The chart is installed, used, upgraded and uninstalled: nothing of it stays, or is another's.

Service, operators and hooks run as the chart says, with its accounts, as processes; the workers
that the service starts are pods of simulated nodes, which never answer: their plans stay on the
way. What is looked at is whose everything in the namespace is, and that it goes.
"""

from __future__ import annotations

import base64
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from circinus.api.client import Client
from circinus.api.phases import CANCELLABLE, QueryPhase
from circinus.api.schemas.query import QueryRequest
from circinus.deploy.kubernetes.names import QUERY
from tests.cluster import programs
from tests.cluster.api import Api, Object, eventually
from tests.cluster.chart import CHART
from tests.cluster.cluster import Cluster, running
from tests.cluster.process_node import LABELS, TAINT, ProcessNode, process_node
from tests.cluster.release import helm
from tests.cluster.requirements import not_here
from tests.cluster.rollouts import apply, delete, rendered

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]
PATIENCE_S = 240.0  # on a machine that others use, too
RELEASE = "circinus.io/release"
_PLANNED = frozenset(QueryPhase) - CANCELLABLE
TIERS = ("edge", "cloud")
INFRASTRUCTURE = {
    "name": "two-tiers",
    "tiers": [
        {"name": "edge", "machines": 3, "price_usd_per_hour": 0.1},
        {"name": "cloud", "machines": 3, "price_usd_per_hour": 5.0},
    ],
    "links": [{"between": list(TIERS), "bandwidth_mbit_per_s": 1000, "delay_s": 0.0001}],
}
VALUES: dict[str, Any] = {
    "persistence": {"storageClass": "-", "size": "1Gi"},
    "infrastructure": {"document": INFRASTRUCTURE},
    "deployment": {"target": "kubernetes", "machine": {"cpu": "1", "memory": "1Gi"}},
    "settings": {
        "CIRCINUS_PLANNING_WORKERS": "1",
        "CIRCINUS_EXTRA_PIPELINES": "tests.e2e.slow_sum:pipeline",
    },
    # Probes would need a port of each operator's own: there is no network between pods here.
    "operator": {"leaseSeconds": 3, "replicas": 1, "healthPort": 0},
    "nodeSelector": LABELS,
    "tolerations": [TAINT],
}
SPEC = {
    "pipeline": "slow-sum",
    "data": {"examples": 60},
    "slo": {"accuracy": 0.6, "latency_s": 1.0},
    "limits": {"profiling_s": 60.0, "configurations": 4},  # however busy the machine is
}


@dataclass
class Installed:
    """A namespace in which releases of the chart run as processes."""

    cluster: Cluster
    namespace: str
    node: ProcessNode
    folder: Path
    volumes: list[str] = field(default_factory=list)

    @property
    def api(self) -> Api:
        return self.cluster.api

    def install(self, release: str, **values: object) -> None:
        """Install a release, and wait until it is ready; its volume is there for good."""
        volume = f"{self.namespace}-{release}"
        if volume not in self.volumes:
            self._make_volume(volume, release)
        self._helm("install", release, values)

    def upgrade(self, release: str, **values: object) -> None:
        self._helm("upgrade", release, values)

    def uninstall(self, release: str) -> None:
        self.told(helm, self.cluster, self.namespace, "uninstall", release, "--wait")

    def client(self, release: str) -> Client:
        """Return a client of a release's service."""
        secret = self.api.get(self.path("api/v1", f"secrets/{release}-token")) or {}
        token = base64.b64decode(secret["data"]["token"]).decode()
        return Client(f"http://{self.node.address_of(self.namespace, release)}:8350", token=token)

    def kill_service(self, release: str) -> None:
        """Let the service be gone at once, with no time to end anything, and not come back."""
        chosen = "app.kubernetes.io/component=service"
        (pod,) = self.api.items(self.path("api/v1", "pods"), labelSelector=chosen)
        self.node.kill(pod["metadata"]["uid"])
        scale = {"spec": {"replicas": 0}}
        self.api.merge(f"{self.path('apis/apps/v1', 'deployments')}/{release}", scale)

    def said(self, pod: str) -> str:
        """Return what all pods whose name begins so have said."""
        return "".join(path.read_text() for path in self.folder.glob(f"{pod}*.log"))

    def create(self, name: str, **labels: str) -> None:
        """Make a query; `release` is the only label that there is to choose."""
        chosen = {RELEASE: labels["release"]} if labels else {}
        body = {
            "apiVersion": "circinus.io/v1alpha1",
            "kind": "PipelineQuery",
            "metadata": {"name": name, "labels": chosen},
            "spec": SPEC,
        }
        self.api.create(self.path("apis/circinus.io/v1alpha1", "pipelinequeries"), body)

    def queries(self) -> dict[str, Object]:
        """Return the queries by name."""
        path = self.path("apis/circinus.io/v1alpha1", "pipelinequeries")
        return {each["metadata"]["name"]: each for each in self.api.items(path)}

    def taken(self, *names: str) -> bool:
        """Whether these queries are known to a service."""
        found = self.queries()
        return all(found[name].get("status", {}).get("queryId") for name in names)

    def all_planned(self) -> bool:
        """Whether no query is left whose plan, once it is made, could move those of others."""
        return all(q.get("status", {}).get("phase") in _PLANNED for q in self.queries().values())

    def workers(self, release: str) -> dict[str, Object]:
        """Return everything that the service of a release made, by kind and name."""
        found = {}
        for kind, group in (("deployments", "apis/apps/v1"), ("services", "api/v1")):
            chosen = f"{RELEASE}={release},app.kubernetes.io/component=worker"
            for each in self.api.items(self.path(group, kind), labelSelector=chosen):
                found[f"{kind}/{each['metadata']['name']}"] = each
        return found

    def uid(self, group: str, plural: str, name: str) -> str | None:
        found = self.api.get(f"{self.path(group, plural)}/{name}")
        return None if found is None else str(found["metadata"]["uid"])

    def everything(self) -> dict[str, Object]:
        """Return all that is in the namespace but what each namespace has, by kind and name."""
        found = {}
        for path, plural in collections(self.api):
            for each in self.api.items(f"/{path}/namespaces/{self.namespace}/{plural}"):
                found[f"{plural}/{each['metadata']['name']}"] = each
        own = {"serviceaccounts/default", "configmaps/kube-root-ca.crt"}
        return {k: v for k, v in found.items() if k not in own and not k.startswith("events/")}

    def is_left_with(self, *names: str) -> None:
        """Wait until nothing else is left."""
        try:
            eventually(lambda: self.everything().keys() == set(names), "an end", timeout_s=60)
        except AssertionError as error:
            left = sorted(self.everything().keys() ^ set(names))
            raise AssertionError(f"{left} are left, or missing\n{self.node.logs()}") from error

    def wait(self, condition: Any, what: str) -> None:  # noqa: ANN401 - as `eventually`
        self.told(eventually, condition, what, timeout_s=PATIENCE_S)

    def told(self, call: Any, *arguments: Any, **options: Any) -> None:  # noqa: ANN401 - any call
        """Do it; what fails is told with what the pods said."""
        try:
            call(*arguments, **options)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.node.logs()}") from error

    def path(self, group: str, plural: str) -> str:
        return f"/{group}/namespaces/{self.namespace}/{plural}"

    def _helm(self, verb: str, release: str, values: dict[str, object]) -> None:
        file = self.folder / f"{release}.json"
        file.write_text(json.dumps(VALUES))
        flags = [
            word for k, v in values.items() for word in ("--set", f"{k.replace('_', '.')}={v}")
        ]
        command = (verb, release, str(CHART), "-f", str(file), "--wait", "--timeout", "6m", *flags)
        self.told(helm, self.cluster, self.namespace, *command)

    def _make_volume(self, name: str, claim: str) -> None:
        folder = self.folder / name
        folder.mkdir()
        spec = {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "hostPath": {"path": str(folder)},
            "claimRef": {"namespace": self.namespace, "name": claim},
            "storageClassName": "",
            "persistentVolumeReclaimPolicy": "Retain",
        }
        self.api.create("/api/v1/persistentvolumes", {"metadata": {"name": name}, "spec": spec})
        self.volumes.append(name)


def collections(api: Api) -> Iterator[tuple[str, str]]:
    """Yield (path of the group, plural) of everything that can be listed in a namespace."""
    groups = (api.get("/apis") or {})["groups"]
    paths = ["api/v1", *(f"apis/{each['preferredVersion']['groupVersion']}" for each in groups)]
    for path in paths:
        for each in (api.get(f"/{path}") or {})["resources"]:
            if each["namespaced"] and "list" in each["verbs"] and "/" not in each["name"]:
                yield path, each["name"]


@contextmanager
def short_folder() -> Iterator[Path]:
    """Return a folder of a short path: there is room for 107 letters in that of a socket."""
    with tempfile.TemporaryDirectory(prefix="c-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def machine() -> Iterator[tuple[Cluster, ProcessNode, Path]]:
    """A cluster of one's own, so that the chart finds none of its definitions there."""
    for program in (*programs.CONTROL_PLANE, programs.HELM):
        try:
            programs.find(program)
        except programs.NotBuilt as error:
            not_here(str(error))
    with short_folder() as folder, running() as cluster, process_node(cluster, folder) as node:
        yield cluster, node, folder


@pytest.fixture
def installed(machine: tuple[Cluster, ProcessNode, Path]) -> Iterator[Installed]:
    """A namespace; the test leaves it without anything that holds it."""
    cluster, node, folder = machine
    with cluster.namespace() as namespace:
        found = Installed(cluster=cluster, namespace=namespace, node=node, folder=folder)
        yield found
        for volume in found.volumes:
            cluster.api.delete(f"/api/v1/persistentvolumes/{volume}")
    path = f"/api/v1/namespaces/{namespace}"
    eventually(lambda: cluster.api.get(path) is None, "the namespace gone", timeout_s=60)


def test_after_install_ten_queries_upgrade_and_uninstall_nothing_is_left_but_the_volume(
    installed: Installed,
) -> None:
    names = [f"query-{number}" for number in range(10)]
    installed.install("one")
    for name in names:
        installed.create(name)
    installed.wait(lambda: installed.taken(*names), "ten queries that are known")
    installed.wait(lambda: len(installed.workers("one")) >= 4, "workers of two queries")
    objects = {q["metadata"]["uid"]: name for name, q in installed.queries().items()}
    for each in installed.workers("one").values():
        labels, (owner,) = each["metadata"]["labels"], each["metadata"]["ownerReferences"]
        assert labels["app.kubernetes.io/part-of"] == "circinus"
        assert (owner["kind"], owner["name"]) == ("PipelineQuery", objects[owner["uid"]])

    installed.upgrade("one", podAnnotations_again="yes")
    installed.create("late")
    installed.wait(lambda: installed.taken("late"), "a query that is known after the upgrade")

    claim = installed.uid("api/v1", "persistentvolumeclaims", "one")
    installed.uninstall("one")
    installed.is_left_with("persistentvolumeclaims/one")
    assert "nobody releases" not in installed.said("one-retire")  # the operator has, all of them
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/pipelinequeries.circinus.io"
    assert installed.api.get(path) is not None

    # A release of the same name takes the volume up; this one is told not to keep it.
    installed.install("one", persistence_keep="false")
    assert installed.uid("api/v1", "persistentvolumeclaims", "one") == claim
    with installed.client("one") as client:
        assert len(list(client.all_queries())) == 11
        client.submit(QueryRequest.model_validate(SPEC))  # that no object stands for
    installed.create("last")
    installed.wait(lambda: len(owners_of_workers(installed)) == 2, "workers of both queries")
    assert owners_of_workers(installed) == {"Deployment/one", "PipelineQuery/last"}
    # The service dies, and without it the operator can release nothing.
    installed.kill_service("one")
    installed.uninstall("one")
    assert "nobody releases last" in installed.said("one-retire")
    installed.is_left_with()


def test_two_releases_and_an_applied_plan_in_one_namespace_leave_each_other_alone(
    installed: Installed,
) -> None:
    plan = rendered(installed.namespace, placement=TIERS)
    apply(installed.cluster, plan)
    for release in ("one", "two"):
        installed.install(release)
    named = {"for-one": "one", "for-two": "two"}
    for name, release in named.items():
        installed.create(name, release=release)
    free = [f"free-{number}" for number in range(6)]
    for name in free:
        installed.create(name)
    installed.wait(installed.all_planned, "queries that are planned")

    taken = {name: q["metadata"]["labels"][RELEASE] for name, q in installed.queries().items()}
    assert named.items() <= taken.items()
    assert set(taken.values()) == {"one", "two"}
    assert {name: known_to(installed, q) for name, q in installed.queries().items()} == {
        name: [release] for name, release in taken.items()
    }
    installed.wait(
        lambda: installed.workers("one") and installed.workers("two"), "workers of both"
    )

    others = uids_of_others(installed)
    installed.uninstall("one")
    mine = {name for name, release in taken.items() if release == "two"}
    assert installed.queries().keys() == mine
    installed.wait(lambda: not installed.workers("one"), "the workers of one gone")
    assert others.items() <= uids_of_others(installed).items()

    installed.create("after")
    installed.wait(lambda: installed.taken("after"), "a query that two takes")
    installed.uninstall("two")
    delete(installed.cluster, plan)
    installed.is_left_with("persistentvolumeclaims/one", "persistentvolumeclaims/two")


def owners_of_workers(installed: Installed) -> set[str]:
    """Return kind and name of what owns the workers of the release `one`."""
    metadata = [each["metadata"] for each in installed.workers("one").values()]
    owners = [owner for each in metadata for owner in each["ownerReferences"]]
    return {f"{owner['kind']}/{owner['name']}" for owner in owners}


def known_to(installed: Installed, query: Object) -> list[str]:
    """Return the releases whose service has queries of an object."""
    found = []
    for release in ("one", "two"):
        with installed.client(release) as client:
            if list(client.all_queries(key_prefix=f"{query['metadata']['uid']}/")):
                found.append(release)
    return found


def uids_of_others(installed: Installed) -> dict[str, str]:
    """Return what is of the release `two` or of the applied plan, by kind and name."""
    found = {}
    for key, each in installed.everything().items():
        labels = each["metadata"].get("labels", {})
        named = labels.get(RELEASE), labels.get("app.kubernetes.io/instance")
        if key.partition("/")[2].startswith("two") or "two" in named or labels.get(QUERY) == "q":
            found[key] = each["metadata"]["uid"]
    return found
