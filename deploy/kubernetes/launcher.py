"""Instances as pods of a cluster.

The cluster starts, restarts and moves pods; we say what should be there and listen to which
workers are ready. An instance ends when its address is gone; the next start finds the pod that the
cluster made in its place. After a restart of the service it finds the pods that are running.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from deploy.errors import LaunchFailed
from deploy.instances import InstanceSpec
from deploy.kubernetes.api import Cluster, Object
from deploy.kubernetes.endpoints import COLLECTION, ready_addresses
from deploy.kubernetes.mirror import Mirror
from deploy.kubernetes.pods import why_not_ready
from deploy.kubernetes.worker_objects import (
    PLAN_LABEL,
    PORT_NAME,
    QUERY_LABEL,
    SELECTOR,
    WorkerShape,
    name_of,
    worker_objects,
)
from deploy.shares import Enforcement, enforcement_for
from deploy.tls import TlsFiles
from deploy.workers.client import WorkerClient
from pipelines.errors import CircinusError

_POLL_S = 0.1
_COLLECTIONS = {
    "Deployment": "/apis/apps/v1/namespaces/{namespace}/deployments",
    "Service": "/api/v1/namespaces/{namespace}/services",
}

_log = logging.getLogger(__name__)


class ReadyWorkers:
    """The addresses of ready workers by Service, as the cluster tells them. In one event loop."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self._found: Mapping[str, frozenset[tuple[str, str]]] = {}
        path = COLLECTION.format(namespace=namespace)
        # The labels are the Services': the cluster copies them to their slices.
        self._mirror = Mirror(cluster=cluster, path=path, heard=self._hear, selector=SELECTOR)
        self._mirror.start()

    def of(self, service: str) -> frozenset[tuple[str, str]]:
        """Give (pod, address) of what is ready now."""
        return self._found.get(service, frozenset())

    async def change(self) -> None:
        """Return after the next change."""
        await self._news.wait()

    def stop(self) -> None:
        """Listen no longer."""
        self._mirror.stop()

    def _hear(self, slices: Mapping[str, Object]) -> None:
        found = ready_addresses(slices.values(), PORT_NAME)
        self._loop.call_soon_threadsafe(self._take, found)

    def _take(self, found: Mapping[str, frozenset[tuple[str, str]]]) -> None:
        self._found = found
        self._news.set()
        self._news = asyncio.Event()


@dataclass(slots=True, eq=False)
class ClusterInstance:
    """A worker's pod."""

    service: str
    pod: str
    address: str
    tls: TlsFiles | None
    enforcement: Enforcement
    _launcher: ClusterLauncher
    note: str = "the worker keeps to it"
    pid: int | None = field(default=None, init=False)
    _gone: bool = field(default=False, init=False)

    def limit(self) -> None:
        """See `RunningInstance`: the worker does so by itself, but for warming up."""

    async def ended(self) -> str:
        """See `RunningInstance`."""
        while (self.pod, self.address) in self._launcher.ready.of(self.service):
            await self._launcher.ready.change()
        self._gone = True
        return f"pod {self.pod} is not ready any more"

    async def stop(self) -> None:
        """See `RunningInstance`. One that ended leaves its Deployment: a new pod comes of it."""
        if not self._gone and not self._launcher.leaving:
            await self._launcher.remove(self.service)


class ClusterLauncher:
    """Starts workers as pods. Used within one event loop.

    Attributes:
        ready: Which workers are.
        leaving: Whether what runs is left running: the service ends, its pods serve its next run.
    """

    def __init__(
        self,
        cluster: Cluster,
        shape: WorkerShape,
        tls: TlsFiles,
        *,
        start_timeout_s: float = 180.0,
    ) -> None:
        """Make a launcher; it listens from now on.

        Args:
            cluster: Where pods run.
            shape: What they have in common.
            tls: With what they are called.
            start_timeout_s: How long one may take until it is healthy.
        """
        self.ready = ReadyWorkers(cluster, shape.namespace)
        self.leaving = False
        self._cluster = cluster
        self._shape = shape
        self._tls = tls
        self._start_timeout_s = start_timeout_s

    async def start(self, spec: InstanceSpec) -> ClusterInstance:
        """See `Launcher`."""
        service = name_of(spec.key)
        try:
            async with asyncio.timeout(self._start_timeout_s):
                for document in worker_objects(spec, self._shape):
                    await self._apply(document)
                pod, address = await self._healthy(service)
        except TimeoutError as error:
            cause = f"not ready within {self._start_timeout_s:g} s"
            told = await asyncio.to_thread(self._why, service)
            await self.remove(service)
            raise LaunchFailed(str(spec.key), cause, told) from error
        except CircinusError as error:
            raise LaunchFailed(
                str(spec.key), str(error), "(the cluster did not take it)"
            ) from error
        except asyncio.CancelledError:
            await self.remove(service)
            raise
        enforcement = enforcement_for(spec.operators, spec.share, cgroups=False)
        return ClusterInstance(service, pod, address, self._tls, enforcement, self)

    async def remove(self, service: str) -> None:
        """Delete an instance's objects; what does not answer is pruned later."""
        for collection in _COLLECTIONS.values():
            path = f"{collection.format(namespace=self._shape.namespace)}/{service}"
            try:
                await asyncio.to_thread(self._cluster.delete, path)
            except CircinusError as error:
                _log.warning("delete_failed path=%s cause=%s", path, error)

    async def prune(self, wanted: Collection[tuple[str, str]]) -> tuple[str, ...]:
        """Delete the instances of plans that nobody wants; give their names.

        Args:
            wanted: (query, plan) of those that stay.

        Raises:
            ClusterRefused: If the cluster says no.
            Unavailable: If it does not answer.
        """
        path = _COLLECTIONS["Deployment"].format(namespace=self._shape.namespace)
        found = await asyncio.to_thread(self._cluster.listed, path, labelSelector=SELECTOR)
        spare = [
            item["metadata"]["name"]
            for item in found["items"]
            if _owner(item) not in wanted and not item["metadata"].get("deletionTimestamp")
        ]
        for name in spare:
            await self.remove(name)
        return tuple(spare)

    async def _apply(self, document: Object) -> None:
        collection = _COLLECTIONS[document["kind"]].format(namespace=self._shape.namespace)
        path = f"{collection}/{document['metadata']['name']}"
        await asyncio.to_thread(self._cluster.apply, path, document)

    async def _healthy(self, service: str) -> tuple[str, str]:
        while True:
            for pod, address in self.ready.of(service):
                if await self._answers(address):
                    return pod, address
            try:
                async with asyncio.timeout(1.0):
                    await self.ready.change()
            except TimeoutError:
                continue

    async def _answers(self, address: str) -> bool:
        client = WorkerClient(address, self._tls)
        try:
            return await client.healthy(timeout_s=2.0)
        finally:
            await client.close()

    def _why(self, service: str) -> str:
        path = f"/api/v1/namespaces/{self._shape.namespace}/pods"
        try:
            pods = self._cluster.listed(path, labelSelector=f"circinus.io/instance={service}")
        except CircinusError as error:
            return f"(its pods cannot be read: {error})"
        return why_not_ready(pods["items"])


def _owner(item: Object) -> tuple[str, str]:
    labels = item["metadata"].get("labels") or {}
    return labels.get(QUERY_LABEL, ""), labels.get(PLAN_LABEL, "")
