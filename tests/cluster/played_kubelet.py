"""A kubelet that a test plays: pods run as processes of this machine, each at its own address.

The cluster's own controllers make and scale them, place them on the node that is played, put them
into EndpointSlices and delete them; requests to them are answered by real workers.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Thread
from typing import Any

from circinus.deploy.kubernetes.pods import HEALTH_PORT
from circinus.deploy.workers.transport import SERVER_NAME
from tests.cluster.api import Api
from tests.cluster.simulated import TIER
from tests.e2e.service_process import ROOT

_POLL_S = 0.1
_NETWORK = "10.199.199"  # of no cluster's place
_TLS = "/etc/circinus-tls"
_NODES = "/api/v1/nodes"
_BEAT_S = 5.0


def missing() -> str:
    """Return what this machine lacks for it; empty: nothing."""
    if os.geteuid() != 0:
        return "only root may give addresses to the loopback device"
    lacking = [name for name in ("ip", "openssl") if shutil.which(name) is None]
    return f"not installed: {', '.join(lacking)}" if lacking else ""


def certificates(folder: Path) -> Path:
    """Make the certificates of workers and of those who call them; give their folder."""
    make = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    files = ["-keyout", "tls.key", "-out", "tls.crt", "-subj", "/CN=workers"]
    names = ["-addext", f"subjectAltName=DNS:{SERVER_NAME}"]
    subprocess.run([*make.split(), *files, *names], cwd=folder, check=True, capture_output=True)
    shutil.copy(folder / "tls.crt", folder / "ca.crt")
    return folder


@dataclass
class _Pod:
    address: str
    process: subprocess.Popen[bytes]
    ready: bool = False


@dataclass
class PlayedKubelet:
    """A node of a tier, and its pods of a namespace.

    Attributes:
        running: Processes by the names of their pods.
    """

    api: Api
    namespace: str
    tier: str
    tls: Path
    running: dict[str, _Pod] = field(default_factory=dict)
    _over: Event = field(default_factory=Event)
    _numbers: Iterator[int] = field(default_factory=lambda: iter(range(1, 255)))

    def ready(self) -> set[int]:
        """Return the processes of the pods that are ready."""
        return {pod.process.pid for pod in tuple(self.running.values()) if pod.ready}

    def keep_on(self) -> None:
        """Look after the pods until `stop`."""
        beaten_s = -_BEAT_S
        while not self._over.wait(_POLL_S):
            if time.monotonic() - beaten_s >= _BEAT_S:
                beaten_s = time.monotonic()
                self.api.merge(f"{_NODES}/{self.tier}/status", _alive())
            self._tick()

    def stop(self) -> None:
        """Kill what runs, take the addresses back and the node away."""
        self._over.set()
        for name in tuple(self.running):
            self._end(name)
        self.api.delete(f"{_NODES}/{self.tier}")

    @property
    def _pods(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods"

    def _tick(self) -> None:
        found = [p for p in self.api.items(self._pods) if p["spec"].get("nodeName") == self.tier]
        over = [p["metadata"]["name"] for p in found if p["metadata"].get("deletionTimestamp")]
        there = {p["metadata"]["name"]: p for p in found if p["metadata"]["name"] not in over}
        for name in self.running.keys() - there.keys():
            self._end(name)
        for name in over:
            self.api.delete(f"{self._pods}/{name}?gracePeriodSeconds=0")
        for name in there.keys() - self.running.keys():
            self.running[name] = self._begun(there[name])
        for name, pod in self.running.items():
            if not pod.ready and _listens(pod.address):
                with suppress(RuntimeError):  # it was deleted meanwhile
                    self.api.merge(f"{self._pods}/{name}/status", _ready_at(pod.address))
                    pod.ready = True

    def _begun(self, pod: dict[str, Any]) -> _Pod:
        address = f"{_NETWORK}.{next(self._numbers)}"
        _ip("add", address)
        (container,) = pod["spec"]["containers"]
        told = [word.replace("0.0.0.0:", f"{address}:") for word in container["args"]]
        told = [word.replace(_TLS, str(self.tls)) for word in told]
        process = subprocess.Popen(
            [sys.executable, "-m", "circinus.deploy.workers.server", *told],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.DEVNULL,
        )
        return _Pod(address, process)

    def _end(self, name: str) -> None:
        pod = self.running.pop(name)
        pod.process.kill()
        pod.process.wait()
        _ip("del", pod.address)


@contextmanager
def playing(api: Api, namespace: str, tier: str, tls: Path) -> Iterator[PlayedKubelet]:
    """Return a node of a tier whose pods run until the context is left; nothing is left of it."""
    kubelet = PlayedKubelet(api, namespace, tier, tls)
    there = {"cpu": "16", "memory": "64Gi", "pods": "50"}
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": tier, "labels": {TIER: tier}},
        "status": {"allocatable": there, "capacity": there, **_alive()["status"]},
    }
    api.create(_NODES, node)
    thread = Thread(target=kubelet.keep_on, name="kubelet", daemon=True)
    thread.start()
    try:
        yield kubelet
    finally:
        kubelet._over.set()
        thread.join()
        kubelet.stop()


def _listens(address: str) -> bool:
    with suppress(OSError), socket.create_connection((address, HEALTH_PORT), timeout=1.0):
        return True
    return False


def _ready_at(address: str) -> dict[str, Any]:
    conditions = [{"type": kind, "status": "True"} for kind in ("ContainersReady", "Ready")]
    told = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}
    return {"status": {**told, "conditions": conditions}}


def _alive() -> dict[str, Any]:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    ready = {"type": "Ready", "status": "True", "reason": "Played", "lastHeartbeatTime": now}
    return {"status": {"conditions": [ready]}}


def _ip(what: str, address: str) -> None:
    command = ["ip", "address", what, f"{address}/32", "dev", "lo"]
    subprocess.run(command, check=what == "add", capture_output=True)
