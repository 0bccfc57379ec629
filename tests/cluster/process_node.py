"""A node whose pods are processes of this computer: the chart runs as it is, without images.

It does a kubelet's part for the pods that are bound to it: it runs the container's arguments with
its variables, volumes and account, tells whether it is ready and how it ended, and ends it when
the pod is deleted. Isolation is missing, and the network: what listens does so on a loopback
address of its release, by which names of Services are replaced.
"""

from __future__ import annotations

import base64
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx

from tests.cluster.api import Object
from tests.cluster.cluster import Cluster
from tests.cluster.processes import MARK, kill_marked
from tests.e2e.service_process import ROOT

NODE = "processes"
LABELS = {"circinus.io/test-node": NODE}
TAINT = {"key": "circinus.io/test-node", "value": NODE, "effect": "NoSchedule"}
"""Only what tolerates it and asks for the labels is run here."""
_ROOM = {"cpu": "64", "memory": "256Gi", "pods": "200"}
_POLL_S, _HEARTBEAT_S, _RESTART_S = 0.1, 10.0, 1.0
_INSTANCE = "app.kubernetes.io/instance"
_FIXED = {"/etc/circinus-tls": "CIRCINUS_WORKER_TLS"}
"""Where an image looks for a mount without being told, and the variable that says otherwise."""


@dataclass(slots=True, kw_only=True)
class _Running:
    """A pod's container, as a process."""

    process: subprocess.Popen[bytes]
    folder: Path  # of the pod, and the mark of all that it started
    address: str
    ready: bool | None = None  # as it was told last
    ended_at: float | None = None  # when it ended, by our clock
    ending_since: float | None = None  # when it was told to end


@dataclass(slots=True, kw_only=True)
class ProcessNode:
    """Runs the pods of its node, in one thread."""

    cluster: Cluster
    folder: Path  # of everything; its path is short, as sockets lie below it
    over: threading.Event = field(default_factory=threading.Event)
    _pods: dict[str, _Running] = field(default_factory=dict)  # by uid
    _addresses: dict[tuple[str, str], str] = field(default_factory=dict)  # by namespace, release

    def address_of(self, namespace: str, release: str) -> str:
        """Return the loopback address on which the service of a release listens."""
        number = len(self._addresses) + 1
        return self._addresses.setdefault((namespace, release), f"127.0.1.{number}")

    def kill(self, uid: str) -> None:
        """Kill what a pod runs; if the pod stays, it is started again after a moment."""
        _kill(self._pods[uid])

    def logs(self) -> str:
        """Return the end of what every pod said."""
        texts = {path.stem: path.read_text()[-3000:] for path in self.folder.glob("*.log")}
        return "\n".join(f"== {name}\n{text}" for name, text in sorted(texts.items()))

    def run(self) -> None:
        """Run pods until it is over, then end all of them."""
        beat = 0.0
        while not self.over.is_set():
            if time.monotonic() > beat:
                self._beat()
                beat = time.monotonic() + _HEARTBEAT_S
            self._step()
            self.over.wait(_POLL_S)
        for each in self._pods.values():
            _kill(each)

    def _beat(self) -> None:
        now = _now()
        ready = {"type": "Ready", "status": "True", "reason": "Runs", "message": ""}
        conditions = [{**ready, "lastHeartbeatTime": now, "lastTransitionTime": now}]
        self.cluster.api.merge(
            f"/api/v1/nodes/{NODE}/status", {"status": {"conditions": conditions}}
        )

    def _step(self) -> None:
        api = self.cluster.api
        pods = api.items("/api/v1/pods", fieldSelector=f"spec.nodeName={NODE}")
        for pod in pods:
            try:
                self._look(pod)
            except (RuntimeError, KeyError):  # it is gone by now, or lacks something still
                continue
        for uid in self._pods.keys() - {pod["metadata"]["uid"] for pod in pods}:
            _kill(self._pods.pop(uid))

    def _look(self, pod: Object) -> None:
        uid, known = pod["metadata"]["uid"], self._pods.get(pod["metadata"]["uid"])
        if "deletionTimestamp" in pod["metadata"]:
            if known is None or _has_ended(known, pod["metadata"]["deletionGracePeriodSeconds"]):
                self.cluster.api.delete(f"{_path(pod)}?gracePeriodSeconds=0")
            return
        if pod["status"].get("phase") in ("Succeeded", "Failed"):
            return
        if known is None:
            self._pods[uid] = self._started(pod)
            return
        code = known.process.poll()
        if code is None:
            self._tell_ready(pod, known)
        elif known.ended_at is None:
            known.ended_at = time.monotonic()
        elif _restarts(pod, code):
            if time.monotonic() - known.ended_at > _RESTART_S:
                self._pods[uid] = self._started(pod)
        else:
            phase = "Failed" if code else "Succeeded"
            self._tell(pod, known, phase, {"terminated": {"exitCode": code, "reason": phase}})

    def _started(self, pod: Object) -> _Running:
        (container,), metadata = pod["spec"]["containers"], pod["metadata"]
        own = self.folder / metadata["uid"][:8]
        own.mkdir(exist_ok=True)
        address = self.address_of(metadata["namespace"], metadata["labels"][_INSTANCE])
        folders = self._mounts(pod, container, own)
        variables = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("CIRCINUS_", "KUBE"))},
            "PYTHONPATH": str(ROOT),
            "OMP_NUM_THREADS": "1",
            "TMPDIR": folders["/tmp"],
            "XDG_RUNTIME_DIR": folders["/tmp"],
            "XDG_DATA_HOME": folders["/tmp"],
            **{name: folders[path] for path, name in _FIXED.items() if path in folders},
            MARK: str(own),
        }
        if pod["spec"].get("automountServiceAccountToken") is not False:
            variables["KUBECONFIG"] = str(self._account(pod, own))

        def here(text: str) -> str:
            text = re.sub(r"\$\((\w+)\)", lambda found: variables[found[1]], text)
            text = _replaced(text, folders).replace("0.0.0.0", address)
            names = rf"([a-z0-9-]+)\.{metadata['namespace']}\.svc"
            return re.sub(
                names, lambda found: self.address_of(metadata["namespace"], found[1]), text
            )

        for entry in container.get("env", ()):
            variables[entry["name"]] = here(self._value(pod, entry))
        command = [sys.executable, "-m", "circinus.api.cli", *map(here, container["args"])]
        with (self.folder / f"{metadata['name']}.log").open("ab") as log:
            process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "--", *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=variables,
                cwd=own,
                start_new_session=True,
            )
        return _Running(process=process, folder=own, address=address)

    def _account(self, pod: Object, own: Path) -> Path:
        """Return a kubeconfig with a token of the pod's account."""
        name = pod["spec"]["serviceAccountName"]
        path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/serviceaccounts/{name}/token"
        asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        token = self.cluster.api.create(path, asked)["status"]["token"]
        assert self.cluster.control is not None
        self.cluster.control.write_kubeconfig(own / "kubeconfig", token)
        return own / "kubeconfig"

    def _value(self, pod: Object, entry: Object) -> str:
        if "valueFrom" not in entry:
            return str(entry.get("value", ""))
        source = entry["valueFrom"]
        if "fieldRef" in source:
            return str(pod["metadata"][source["fieldRef"]["fieldPath"].removeprefix("metadata.")])
        chosen = source["secretKeyRef"]
        return self._data(pod, "secrets", chosen["name"])[chosen["key"]].decode()

    def _mounts(self, pod: Object, container: Object, own: Path) -> dict[str, str]:
        """Return the folder of every mount by its path."""
        found = {
            volume["name"]: self._volume(pod, volume, own) for volume in pod["spec"]["volumes"]
        }
        mounts = container.get("volumeMounts", ())
        return {
            each["mountPath"]: str(found[each["name"]]) for each in mounts if each["name"] in found
        }

    def _volume(self, pod: Object, volume: Object, own: Path) -> Path:
        if "persistentVolumeClaim" in volume:
            name = volume["persistentVolumeClaim"]["claimName"]
            space = pod["metadata"]["namespace"]
            claim = self.cluster.api.get(
                f"/api/v1/namespaces/{space}/persistentvolumeclaims/{name}"
            )
            volume_name = (claim or {})["spec"]["volumeName"]
            kept = self.cluster.api.get(f"/api/v1/persistentvolumes/{volume_name}") or {}
            return Path(str(kept["spec"]["hostPath"]["path"]))
        folder = own / str(volume["name"])
        folder.mkdir(exist_ok=True)
        if "secret" in volume:
            content = self._data(pod, "secrets", volume["secret"]["secretName"])
            needed = {each["key"] for each in volume["secret"].get("items", ())}
            if not needed <= content.keys():  # as a kubelet, which waits for them
                raise KeyError(sorted(needed - content.keys()))
        elif "configMap" in volume:
            content = self._data(pod, "configmaps", volume["configMap"]["name"])
        else:
            content = {}
        for name, data in content.items():
            (folder / name).write_bytes(data)
        return folder

    def _data(self, pod: Object, plural: str, name: str) -> Mapping[str, bytes]:
        path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/{plural}/{name}"
        data = (self.cluster.api.get(path) or {})["data"]
        if plural == "configmaps":
            return {key: text.encode() for key, text in data.items()}
        return {key: base64.b64decode(text) for key, text in data.items()}

    def _tell_ready(self, pod: Object, known: _Running) -> None:
        ready = _answers(pod["spec"]["containers"][0], known.address)
        if ready != known.ready:
            self._tell(pod, known, "Running", {"running": {"startedAt": _now()}}, ready=ready)
            known.ready = ready

    def _tell(
        self, pod: Object, known: _Running, phase: str, state: Object, *, ready: bool = False
    ) -> None:
        (container,) = pod["spec"]["containers"]
        told = {
            "name": container["name"],
            "image": container["image"],
            "imageID": "none",
            "restartCount": 0,
            "ready": ready,
            "started": True,
            "state": state,
        }
        is_ready = {"type": "Ready", "status": str(ready), "lastTransitionTime": _now()}
        address = f"10.99.0.{known.address.rpartition('.')[2]}"  # endpoints take no loopback
        status = {
            "phase": phase,
            "podIP": address,
            "podIPs": [{"ip": address}],
            "conditions": [is_ready, {**is_ready, "type": "ContainersReady"}],
            "containerStatuses": [told],
        }
        self.cluster.api.merge(f"{_path(pod)}/status", {"status": status})


@contextmanager
def process_node(cluster: Cluster, folder: Path) -> Iterator[ProcessNode]:
    """Return a cluster of ours such a node; its pods are killed afterwards."""
    body: dict[str, Any] = {
        "metadata": {"name": NODE, "labels": {**LABELS, "kubernetes.io/os": "linux"}},
        "spec": {"taints": [TAINT]},
        "status": {"allocatable": _ROOM, "capacity": _ROOM},
    }
    cluster.api.create("/api/v1/nodes", body)
    node = ProcessNode(cluster=cluster, folder=folder)
    thread = threading.Thread(target=node.run)
    thread.start()
    try:
        yield node
    finally:
        node.over.set()
        thread.join()
        cluster.api.delete(f"/api/v1/nodes/{NODE}")


def _path(pod: Object) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _replaced(text: str, folders: Mapping[str, str]) -> str:
    """Return a text with the folder in place of every mount's path, in one go."""
    longest_first = sorted(folders, key=len, reverse=True)
    paths = "|".join(map(re.escape, longest_first))
    return re.sub(rf"(?<![\w.-])({paths})(?![\w.-])", lambda found: folders[found[1]], text)


def _restarts(pod: Object, code: int) -> bool:
    policy = pod["spec"].get("restartPolicy", "Always")
    return policy == "Always" or (policy == "OnFailure" and code != 0)


def _answers(container: Object, address: str) -> bool:
    """Whether all that the probes ask for answers well; without probes it does."""
    ports = {each["name"]: each["containerPort"] for each in container.get("ports", ())}
    for name in ("startupProbe", "readinessProbe"):
        asked = container.get(name, {}).get("httpGet")
        if asked is None:
            continue
        port = ports.get(asked["port"], asked["port"])
        try:
            reply = httpx.get(
                f"http://{address}:{port}{asked['path']}", timeout=2.0, trust_env=False
            )
        except httpx.HTTPError:
            return False
        if reply.is_error:
            return False
    return True


def _has_ended(known: _Running, grace_s: float) -> bool:
    """Whether the process is over; it is told to end first, and killed after the grace."""
    if known.process.poll() is not None:
        _kill(known)
        return True
    if known.ending_since is None:
        known.ending_since = time.monotonic()
        known.process.terminate()
    elif time.monotonic() - known.ending_since > grace_s:
        _kill(known)
    return False


def _kill(known: _Running) -> None:
    """Kill a process and all that it started, wherever that went."""
    known.process.kill()
    kill_marked(known.folder)
    known.process.wait()
