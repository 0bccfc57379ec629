"""The chart, installed on real nodes: a service that answers, and its operators."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from circinus.api.client import Client
from tests.cluster import images, programs
from tests.cluster.api import eventually
from tests.cluster.cluster import Cluster

_CHART = Path(__file__).resolve().parents[2] / "deploy" / "chart"
RELEASE = "circinus"
_PORT = 8350
_REPOSITORY, _TAG = "circinus/service", "test"
IMAGE = f"{_REPOSITORY}:{_TAG}"
_LINKS = [
    {"between": ["device", "edge"], "bandwidth_mbit_per_s": 1000, "delay_s": 0.0005},
    {"between": ["edge", "cloud"], "bandwidth_mbit_per_s": 1000, "delay_s": 0.0005},
]
_CALL_DELAY_S = 0.004  # as `circinus calibrate` found it here
# Nodes of `large` are there where a test rents some.
_TYPES = [
    {"name": "small", "machines": 1, "price_usd_per_hour": 0.4},
    {"name": "large", "machines": 0, "price_usd_per_hour": 0.8},
]
INFRASTRUCTURE = {
    "name": "three-nodes",
    "tiers": [
        {"name": "device", "machines": 1, "speed_factor": 1.0, "call_delay_s": _CALL_DELAY_S},
        {"name": "edge", "machines": 1, "price_usd_per_hour": 0.1, "call_delay_s": _CALL_DELAY_S},
        {"name": "cloud", "call_delay_s": _CALL_DELAY_S, "types": _TYPES},
    ],
    "links": _LINKS,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """The chart as it is installed.

    Attributes:
        cluster: Where.
        namespace: Of everything.
        url: Of the service, on the pod network.
        token: That it wants.
        environment: Folder of the nodes with the Python packages.
        values: File of the chart's values, as they were installed.
    """

    cluster: Cluster
    namespace: str
    url: str
    token: str
    environment: str
    values: Path

    def upgrade(self, **values: Any) -> None:  # noqa: ANN401 - JSON trees
        """Upgrade the release to other values, and do not wait."""
        self.values.write_text(json.dumps(json.loads(self.values.read_text()) | values))
        chart = str(_CHART)
        helm(self.cluster, self.namespace, "upgrade", RELEASE, chart, "-f", str(self.values))

    def client(self) -> Client:
        """Return a client of the service."""
        return Client(self.url, token=self.token)


@contextmanager
def installed(
    cluster: Cluster, folder: Path, more: Mapping[str, Any] | None = None, **settings: str
) -> Iterator[Release]:
    """Return the chart installed in a namespace of its own, with pods for plans and two operators.

    Args:
        cluster: With real nodes.
        folder: For archives, state and packages.
        more: Values of the chart, in place of those that the tests have.
        settings: Further settings of the service.
    """
    images.load(cluster.nodes, folder)
    state = folder / "state"
    state.mkdir(mode=0o777)
    state.chmod(0o777)  # a volume by path is not handed to the pod's group
    with images.environment(folder / "environment") as environment, cluster.namespace() as space:
        _make_volume(cluster, space, state)
        values = folder / "values.json"
        chosen = _values(environment, settings) | dict(more or {})
        values.write_text(json.dumps(chosen))
        helm(cluster, space, "install", RELEASE, str(_CHART), "-f", str(values))
        url = _answering(cluster, space)
        chosen["operator"] |= {"enabled": True, "serviceUrl": url}
        values.write_text(json.dumps(chosen))
        helm(cluster, space, "upgrade", RELEASE, str(_CHART), "-f", str(values))
        secret = cluster.api.get(f"/api/v1/namespaces/{space}/secrets/{RELEASE}-token")
        assert secret is not None
        token = base64.b64decode(secret["data"]["token"]).decode()
        try:
            yield Release(
                cluster=cluster,
                namespace=space,
                url=url,
                token=token,
                environment=str(environment),
                values=values,
            )
        finally:
            helm(cluster, space, "uninstall", RELEASE, "--wait")
            cluster.api.delete(f"/api/v1/persistentvolumes/{space}")


def helm(cluster: Cluster, namespace: str, *arguments: str) -> str:
    """Return what helm says."""
    flags = ["--kubeconfig", str(cluster.kubeconfig), "--namespace", namespace]
    command = [str(programs.find(programs.HELM)), *arguments, *flags]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _values(environment: Path, settings: Mapping[str, str]) -> dict[str, Any]:
    return {
        "image": {"repository": _REPOSITORY, "tag": _TAG, "pullPolicy": "Never"},
        "environment": {"hostPath": str(environment)},
        "persistence": {"storageClass": "-", "size": "1Gi"},
        "infrastructure": {"document": INFRASTRUCTURE},
        "deployment": {
            "target": "kubernetes",
            "machine": {"cpu": "500m", "memory": "1Gi"},
        },
        "settings": {
            "CIRCINUS_PLANNING_WORKERS": "1",
            "CIRCINUS_DRIFT_S": "86400",  # this machine may be busy: no reason to plan anew
            **settings,
        },
        "resources": {"requests": {"cpu": "200m", "memory": "512Mi"}},
        # Without a kube-proxy they would find the service only with a relay of the test's own.
        "dispatchers": {"replicas": 0},
        # There is no cluster DNS here: the service is found by the address of its pod.
        "operator": {"enabled": False, "leaseSeconds": 6, "replicas": 1},
        "nodeSelector": {"circinus.io/tier": "cloud"},
    }


def _make_volume(cluster: Cluster, namespace: str, folder: Path) -> None:
    volume = {
        "metadata": {"name": namespace},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "hostPath": {"path": str(folder)},
            "claimRef": {"namespace": namespace, "name": RELEASE},
            "storageClassName": "",
            "persistentVolumeReclaimPolicy": "Retain",
        },
    }
    cluster.api.create("/api/v1/persistentvolumes", volume)


def _answering(cluster: Cluster, namespace: str) -> str:
    """Return the URL of the service's pod, once it is ready."""
    pods = f"/api/v1/namespaces/{namespace}/pods"
    selector = "app.kubernetes.io/component=service"

    def address() -> str | None:
        for pod in cluster.api.items(pods, labelSelector=selector):
            conditions = pod["status"].get("conditions") or []
            if any(c["type"] == "Ready" and c["status"] == "True" for c in conditions):
                return str(pod["status"]["podIP"])
        return None

    eventually(address, "a ready pod of the service", timeout_s=180)
    return f"http://{address()}:{_PORT}"
