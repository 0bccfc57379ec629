"""Instances as pods of a cluster, with the dispatcher and the policies of local ones.

The cluster starts, restarts and moves pods; we declare what should be there and watch which
workers are ready. An instance ends when its address is gone; the next start finds the pod that the
cluster made in its place. After a restart of the service it finds the pods that are running.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count

from circinus.deploy.kubernetes.api import Cluster, Object, collection_of, key_of, path_of
from circinus.deploy.kubernetes.diagnosis import why_not_ready
from circinus.deploy.kubernetes.mirror import Mirror
from circinus.deploy.kubernetes.names import INSTANCE, PLAN, QUERY, label_value
from circinus.deploy.kubernetes.ownership import (
    DEFAULT_RELEASE,
    ObjectOwner,
    belonging,
    selector_of_workers,
)
from circinus.deploy.kubernetes.pods import (
    PORT_NAME,
    RenderSettings,
    name_of,
    tier_budget,
    worker_objects,
)
from circinus.deploy.kubernetes.resources import enforcement_of
from circinus.deploy.runtime.instances import (
    DesiredDeployment,
    InstanceSpec,
    Launcher,
    RunningInstance,
    refuse_callers,
)
from circinus.deploy.runtime.orchestrator import Orchestrator
from circinus.deploy.workers.client import answers
from circinus.deploy.workers.errors import LaunchFailed
from circinus.deploy.workers.transport import TlsFiles
from circinus.pipelines.errors import CircinusError

SERVICE_LABEL = "kubernetes.io/service-name"
_HEALTH_S = 2.0
_RETRY_S = 0.5  # between two calls of a pod that is ready and does not answer
_GONE_S = 5.0  # that the pod of a deleted Deployment may take requests: a moment, as a rule

_log = logging.getLogger(__name__)


class ReadyWorkers:
    """The addresses of a release's ready workers, by Service. Used within one event loop.

    From its EndpointSlices: those that are split, or name an address twice while the cluster moves
    it, change nothing.
    """

    def __init__(self, cluster: Cluster, namespace: str, release: str) -> None:
        """Listen from now on; the Services' labels are on their slices, too."""
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self._addresses: Mapping[str, frozenset[tuple[str, str]]] = {}
        path = collection_of("EndpointSlice", namespace)
        chosen = selector_of_workers(release)
        self._mirror = Mirror(cluster=cluster, path=path, on_change=self._ingest, selector=chosen)
        self._mirror.start()

    def of(self, service: str) -> frozenset[tuple[str, str]]:
        """Return (pod, address) of what is ready now."""
        return self._addresses.get(service, frozenset())

    async def change(self) -> None:
        """Return after the next change."""
        await self._news.wait()

    async def answering(self, service: str, tls: TlsFiles) -> tuple[str, str]:
        """Wait until a ready pod of a service answers; return its name and address."""
        while True:
            for pod, address in sorted(self.of(service)):
                if await answers(address, tls, timeout_s=_HEALTH_S):
                    return pod, address
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_RETRY_S):
                    await self.change()

    async def lost(self, service: str, pod: str, address: str) -> str:
        """Wait until an address of a pod is not ready any more; return that in words."""
        while (pod, address) in self.of(service):
            await self.change()
        return f"pod {pod} is not ready any more"

    async def beside(
        self, service: str, own: str, address: str, known: frozenset[str]
    ) -> frozenset[str]:
        """Wait until a service's other pods than one's own, at an address, are not those known.

        Return an address of each: a pod may have several, of unlike networks.
        """
        while True:
            ready = sorted(self.of(service), reverse=True)
            others = {pod or at: at for pod, at in ready if pod != own or not pod}
            addresses = frozenset(others.values()) - {address}
            if addresses != known:
                return addresses
            await self.change()

    def stop(self) -> None:
        """Listen no longer."""
        self._mirror.stop()

    def _ingest(self, slices: Mapping[str, Object]) -> None:
        addresses = ready_addresses(slices.values(), PORT_NAME)
        self._loop.call_soon_threadsafe(self._publish, addresses)

    def _publish(self, addresses: Mapping[str, frozenset[tuple[str, str]]]) -> None:
        self._addresses = addresses
        self._news.set()
        self._news = asyncio.Event()


def ready_addresses(
    slices: Iterable[Object], port_name: str
) -> Mapping[str, frozenset[tuple[str, str]]]:
    """Return (pod, `host:port`) of the endpoints that take requests, by their Service."""
    addresses: dict[str, set[tuple[str, str]]] = {}
    for piece in slices:
        service = (piece["metadata"].get("labels") or {}).get(SERVICE_LABEL)
        ports = [p["port"] for p in piece.get("ports") or () if p.get("name") == port_name]
        if service is None or not ports:
            continue
        for endpoint in piece.get("endpoints") or ():
            conditions = endpoint.get("conditions") or {}
            # Left out means ready, by the API's own words; one that is ending is not.
            if conditions.get("ready") is False or conditions.get("terminating"):
                continue
            pod = (endpoint.get("targetRef") or {}).get("name") or ""
            for address in endpoint["addresses"]:
                host = f"[{address}]" if ":" in address else address
                addresses.setdefault(service, set()).add((pod, f"{host}:{ports[0]}"))
    return {service: frozenset(pods) for service, pods in addresses.items()}


@dataclass(slots=True, kw_only=True, eq=False)
class PodInstance(RunningInstance):
    """A pod of a worker, which keeps to its share by itself. To stop it is to let go of it."""

    service: str
    pod: str
    ready: ReadyWorkers

    async def beside(self, known: frozenset[str]) -> frozenset[str]:
        """Return the addresses of the other pods of its Deployment, which was scaled."""
        return await self.ready.beside(self.service, self.pod, self.address, known)

    async def ended(self) -> str:
        """Wait until its address is gone; return how it ended."""
        return await self.ready.lost(self.service, self.pod, self.address)


@dataclass(slots=True, kw_only=True, eq=False)
class ClusterInstance(PodInstance):
    """A pod that the launcher made."""

    number: int  # of its start
    launcher: ClusterLauncher
    _gone: bool = field(default=False, init=False)

    async def ended(self) -> str:
        """Wait until its address is gone; return how it ended."""
        cause = await PodInstance.ended(self)
        self._gone = True
        return cause

    async def stop(self) -> None:
        """Remove its objects. An ended instance keeps its Deployment, which makes a new pod."""
        if not self._gone and not self.launcher.leaving:
            await self.launcher.give_up(self.service, self.number)


@dataclass(slots=True, eq=False)
class ClusterLauncher:
    """Starts workers as pods, and listens from the start on. Used within one event loop."""

    cluster: Cluster
    shape: RenderSettings
    tls: TlsFiles  # with what to call workers
    start_timeout_s: float = 180.0  # how long a worker may take until it is healthy
    callers: Launcher | None = None  # starts what calls endpoints; None: such are refused
    release: str = DEFAULT_RELEASE  # whose the pods are; what others made is not touched
    # who owns the workers of a query; None: none. Blocks, and raises as `Cluster` does
    owner_of: Callable[[str], ObjectOwner | None] = lambda _: None
    ready: ReadyWorkers = field(init=False)
    leaving: bool = field(default=False, init=False)  # what runs stays, for the service's next run
    # name -> the number of its latest start; another's instance is that start's by now
    _starts: dict[str, int] = field(default_factory=dict, init=False)
    _numbers: Iterator[int] = field(default_factory=count, init=False)
    # name -> its removal, while it goes on
    _removals: dict[str, asyncio.Task[None]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.ready = ReadyWorkers(self.cluster, self.shape.namespace, self.release)

    async def start(self, spec: InstanceSpec) -> RunningInstance:
        """Apply the objects of an instance and wait for its pod; errors as `Launcher`."""
        if spec.tier.remote:
            if self.callers is None:
                refuse_callers([spec], "a pod")
            else:
                return await self.callers.start(spec)
        service = name_of(spec.key)
        number = self._starts[service] = next(self._numbers)
        try:
            async with asyncio.timeout(self.start_timeout_s):
                # An instance of that name may be on its way out, and would be taken for this one.
                while service in self._removals:
                    await asyncio.wait({self._removals[service]})
                owner = await asyncio.to_thread(self.owner_of, spec.key.query_id)
                budget = tier_budget(spec, self.shape)
                for document in (budget, *worker_objects(spec, self.shape)):
                    path = path_of(self.shape.namespace, key_of(document))
                    ours = belonging(document, self.release, owner)
                    await asyncio.to_thread(self.cluster.apply, path, ours)
                pod, address = await self.ready.answering(service, self.tls)
        except TimeoutError as error:
            cause = f"not ready within {self.start_timeout_s:g} s"
            why = await asyncio.to_thread(self._why, service)
            await self.give_up(service, number)
            raise LaunchFailed(str(spec.key), cause, why) from error
        except CircinusError as error:
            why = "(the cluster did not take it)"
            raise LaunchFailed(str(spec.key), str(error), why) from error
        except asyncio.CancelledError:
            await self.give_up(service, number)
            raise
        return ClusterInstance(
            address=address,
            tls=self.tls,
            enforcement=enforcement_of(spec, cgroups=False),
            note="the worker keeps to it",
            message_bytes=self.shape.message_bytes,
            service=service,
            pod=pod,
            ready=self.ready,
            number=number,
            launcher=self,
        )

    async def give_up(self, service: str, number: int) -> None:
        """Remove what a start made, unless a later one of the same name has taken it over."""
        if self._starts.get(service) == number:
            await self.remove(service)

    async def remove(self, service: str) -> None:
        """Delete an instance's objects; what does not answer is pruned later.

        Its pod takes no more requests then, but for one that the cluster is slow to end.
        """
        if service not in self._removals:
            self._starts.pop(service, None)
            task = self._removals[service] = asyncio.create_task(self._removed(service))
            task.add_done_callback(lambda _: self._removals.pop(service))
        await asyncio.shield(self._removals[service])

    async def prune(
        self,
        wanted: Collection[tuple[str, str]],
        serving: Mapping[tuple[str, str], Collection[str]],
    ) -> tuple[str, ...]:
        """Delete the instances of all but the wanted (query, plan); return their names.

        Of one that serves those stay that are named there: others were of an earlier run.
        """
        owners = {_labels(*owner) for owner in wanted}
        names = {_labels(*owner): instances for owner, instances in serving.items()}
        spare = [
            name
            for name, owner in await self._owners("Deployment")
            if owner not in owners or name not in names.get(owner, (name,))
        ]
        for name in spare:
            await self.remove(name)
        for name, owner in await self._owners("PodDisruptionBudget"):
            if owner not in owners:
                await self._deleted("PodDisruptionBudget", name)
        return tuple(spare)

    async def _owners(self, kind: str) -> list[tuple[str, tuple[str, str]]]:
        """Return name and owner, by labels, of objects of ours that are not on their way out."""
        path = collection_of(kind, self.shape.namespace)
        chosen = selector_of_workers(self.release)
        document = await asyncio.to_thread(self.cluster.listed, path, labelSelector=chosen)
        each = [item["metadata"] for item in document["items"]]
        there = [metadata for metadata in each if not metadata.get("deletionTimestamp")]
        labelled = [(metadata["name"], metadata.get("labels") or {}) for metadata in there]
        return [(name, (labels.get(QUERY, ""), labels.get(PLAN, ""))) for name, labels in labelled]

    async def _removed(self, service: str) -> None:
        await self._deleted("Deployment", service)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GONE_S):
                # The cluster reports the end of its pod only while there is its Service.
                while self.ready.of(service):
                    await self.ready.change()
        await self._deleted("Service", service)

    async def _deleted(self, kind: str, service: str) -> None:
        path = path_of(self.shape.namespace, f"{kind}/{service}")
        try:
            await asyncio.to_thread(self.cluster.delete, path)
        except CircinusError as error:
            _log.warning("delete_failed path=%s cause=%s", path, error)

    def _why(self, service: str) -> str:
        path = collection_of("Pod", self.shape.namespace)
        try:
            pods = self.cluster.listed(path, labelSelector=f"{INSTANCE}={service}")
        except CircinusError as error:
            return f"(its pods cannot be read: {error})"
        return why_not_ready(pods["items"])


def _labels(query_id: str, plan_id: str) -> tuple[str, str]:
    return label_value(query_id), label_value(plan_id)


class ClusterOrchestrator(Orchestrator):
    """All deployments in a cluster. Used within one event loop.

    What an earlier run of the service left is taken over where it is still wanted, and pruned
    where it is not. Closing leaves everything running for the next run.
    """

    launcher: ClusterLauncher

    async def apply(self, desired: Mapping[str, DesiredDeployment]) -> None:
        """Deploy what is desired as `Orchestrator` does, then prune what an earlier run left."""
        await super().apply(desired)
        if self.launcher.leaving:
            return
        # By now another call may have set what is desired, and begun to start it.
        latest = self._desired or {}
        wanted = {(query_id, deployment.plan.id) for query_id, deployment in latest.items()}
        # A plan that did not start leaves the one before serving.
        wanted |= {(query_id, self.status(query_id).plan_id) for query_id in latest}
        serving = {
            (query_id, deployed.plan_id): [name_of(s.spec.key) for s in deployed.supervisors]
            for query_id, deployed in self._serving.items()
        }
        await self.followers.left()  # what an earlier run left, too, they may send requests to
        try:
            pruned = await self.launcher.prune(wanted, serving)
        except CircinusError as error:  # a surplus does no harm until the next time
            _log.warning("prune_failed cause=%s", error)
            return
        if pruned:
            _log.info("pruned names=%s", ",".join(pruned))

    async def close(self) -> None:
        """Stop following and leave everything running; may be called again."""
        self.launcher.leaving = True
        await super().close()
        self.launcher.ready.stop()
