"""A throw-away cluster: a control plane of our own, or the one that KUBECONFIG names."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import yaml

from tests.cluster import networks, processes, real_nodes, simulated, slots
from tests.cluster.api import Api, eventually
from tests.cluster.control_plane import LOOPBACK, ControlPlane
from tests.cluster.real_nodes import RealNode

MACHINES = {"device": 2, "edge": 3, "cloud": 3}
"""Simulated machines of each tier that every cluster of ours starts with."""
USERS = {"circinus-test-nobody": ("nobody", ("system:authenticated",))}
"""Tokens beside the administrator's: who may do nothing until a test lets them."""


@dataclass(slots=True, kw_only=True)
class Cluster:
    """A cluster for tests.

    Attributes:
        kubeconfig: With which a client is the administrator.
        api: A client that is.
        control: Its control plane; None when it is not ours to stop and start.
        nodes: Its real nodes.
    """

    kubeconfig: Path
    api: Api
    control: ControlPlane | None
    nodes: Sequence[RealNode] = ()

    @contextmanager
    def namespace(self) -> Iterator[str]:
        """Return a namespace of one's own, deleted afterwards."""
        name = f"test-{uuid.uuid4().hex[:8]}"
        metadata = {"name": name}
        self.api.create("/api/v1/namespaces", {"kind": "Namespace", "metadata": metadata})
        path = f"/api/v1/namespaces/{name}"
        eventually(lambda: self.api.get(f"{path}/serviceaccounts/default"), "service account")
        try:
            yield name
        finally:
            self.api.delete(path)


@contextmanager
def running(*, real: bool = False) -> Iterator[Cluster]:
    """Return a cluster with simulated nodes of three tiers, stopped afterwards.

    With real nodes, one per tier and each its tier's machine 0, the simulated ones are tainted.

    What a killed one left in the same place is cleared away first.

    Raises:
        NotBuilt: If a program is missing.
        NotReady: If something does not come up.
    """
    slot = slots.take()
    try:
        clear(slot)
        address = networks.host_address(slot) if real else LOOPBACK
        if real:
            networks.make_bridge(slot)
        control = ControlPlane(folder=slot.folder, address=address, users=USERS)
        try:
            control.start()
            nodes = real_nodes.start(slot, control) if real else []
            _add_simulated_nodes(control.api, first=1 if real else 0, tainted=real)
            yield Cluster(
                kubeconfig=control.kubeconfig, api=control.api, control=control, nodes=nodes
            )
        finally:
            control.stop()
    finally:
        try:
            clear(slot)
        finally:
            slot.release()


def given() -> Cluster | None:
    """Return the cluster that KUBECONFIG names; None when it names none."""
    path = os.environ.get("KUBECONFIG")
    if not path:
        return None
    document = yaml.safe_load(Path(path).read_text())
    cluster = document["clusters"][0]["cluster"]
    token = document["users"][0]["user"]["token"]
    api = Api(cluster["server"], token, Path(cluster["certificate-authority"]))
    return Cluster(kubeconfig=Path(path), api=api, control=None)


def clear(slot: slots.Slot) -> None:
    """Leave nothing of an earlier cluster in a place, and its folder empty."""
    processes.kill_marked(slot.folder)
    real_nodes.remove(slot)
    slot.empty()


def _add_simulated_nodes(api: Api, *, first: int, tainted: bool) -> None:
    names = [
        simulated.add_node(api, tier, machine, tainted=tainted)
        for tier, count in MACHINES.items()
        for machine in range(first, first + count)
    ]
    ready = partial(simulated.is_ready, api)
    eventually(lambda: all(map(ready, names)), "every simulated node ready")
