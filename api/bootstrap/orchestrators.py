"""What sends requests to deployments: of the service, and of a dispatcher beside it.

The Kubernetes client is imported only where a service runs its plans in a cluster.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from circinus.api.bootstrap.calls import limits_of, rate_admission
from circinus.api.bootstrap.registry import RegisteredPipelines
from circinus.api.query_file import read_infrastructure
from circinus.api.settings import Settings
from circinus.api.store.engine import Durability, connect
from circinus.api.store.history import SqlBills, SqlKeys, SqlLatencies
from circinus.api.use_cases.parts import ServiceParts
from circinus.deploy.local.cgroups import available
from circinus.deploy.local.launcher import LocalLauncher
from circinus.deploy.runtime.calls import CallGate, UnlimitedCalls
from circinus.deploy.runtime.following import AddressedLauncher
from circinus.deploy.runtime.heap import freeze_heap
from circinus.deploy.runtime.instances import Launcher
from circinus.deploy.runtime.orchestrator import Orchestrator
from circinus.deploy.workers.transport import files_in
from circinus.pipelines.clock import SystemClock
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.profiler.rate_gate import AsyncRateGate
from circinus.scheduler.problem import Objective

if TYPE_CHECKING:
    from circinus.deploy.kubernetes.access import Permission
    from circinus.deploy.kubernetes.api import Cluster
    from circinus.deploy.kubernetes.launcher import ClusterLauncher
    from circinus.deploy.kubernetes.nodes import Discovery
    from circinus.deploy.kubernetes.ownership import ObjectOwner
    from circinus.deploy.runtime.instances import Launcher

_START_S, _RENTED_S = 180.0, 900.0
"""Seconds that a worker may take to be healthy: where its node is rented first, the longer one."""
Owning = Callable[[str], "ObjectOwner | None"]
"""Returns who owns the workers of a query."""


def make_orchestrator(settings: Settings, sockets: Path, gate: CallGate) -> Orchestrator:
    """Return what starts and ends instances and sends them requests. Needs a running event loop.

    `sockets` is a folder for the sockets of local workers alone, which it empties. The gate
    permits calls to endpoints.

    InvalidInput if there is no way to the cluster in which they should run, or their owner is
    not there, NotAllowed if the account lacks a permission there, Unavailable if the cluster does
    not answer.
    """
    launcher: Launcher
    launcher, kind = _local_launcher(settings, sockets), Orchestrator
    if settings.target == "kubernetes":
        from circinus.deploy.kubernetes.launcher import ClusterOrchestrator
        from circinus.deploy.kubernetes.ownership import WorkerOwners

        key_of = SqlKeys(connect(settings.database_url)).key_of

        def owning(cluster: Cluster, namespace: str, own: ObjectOwner | None) -> Owning:
            return WorkerOwners(
                cluster=cluster,
                namespace=namespace,
                release=settings.release,
                key_of=key_of,
                service=own,
            ).of

        # What calls endpoints needs no machine: it runs here, where the keys of endpoints are.
        launcher, kind = make_cluster_launcher(settings, owning, launcher), ClusterOrchestrator
    engine = connect(settings.database_url, Durability.PROCESS)
    memory, bills = SqlLatencies(engine), SqlBills(engine)
    return _made(settings, launcher, kind, memory=memory, gate=gate, bills=bills)


def make_follower(settings: Settings, instances: AddressedLauncher) -> Orchestrator:
    """Return what sends requests to the instances of a service. Needs a running event loop.

    `instances` are those of this computer. InvalidInput, NotAllowed and
    Unavailable as `make_orchestrator`.
    """
    if settings.target != "kubernetes":
        return _made(settings, instances)
    from circinus.deploy.kubernetes.access import DISPATCHER
    from circinus.deploy.kubernetes.following import FollowingLauncher

    cluster, namespace = _cluster(settings.namespace, DISPATCHER)
    tls, largest = files_in(settings.worker_tls), settings.message_limit_bytes
    return _made(settings, FollowingLauncher(cluster, namespace, settings.release, tls, largest))


def _local_launcher(settings: Settings, sockets: Path) -> LocalLauncher:
    return LocalLauncher(
        logs=settings.worker_logs,
        cgroups=available(),
        allow_import=bool(settings.extra_pipelines),
        memory_bytes=settings.call_memory_bytes,
        message_bytes=settings.message_limit_bytes,
        sockets=sockets,
    )


def _made(
    settings: Settings,
    launcher: Launcher,
    kind: type[Orchestrator] = Orchestrator,
    **parts: Any,  # noqa: ANN401 - those of an Orchestrator
) -> Orchestrator:
    # Imported where requests are dispatched: numba takes a second, and each process would wait.
    from circinus.scheduler.dispatch.policies import dispatch_policy

    catalogue = RegisteredPipelines.of(settings.extra_pipelines)
    freeze_heap()
    return kind(
        read_infrastructure(settings.infrastructure),
        launcher,
        catalogue.referred,
        dispatch_policy(settings.chosen_method.dispatch),
        SystemClock(),
        **parts,
    )


@asynccontextmanager
async def call_gate(settings: Settings) -> AsyncIterator[CallGate]:
    """Open the gate of the calls of deployments; it returns leases on limits at the end.

    InvalidInput if the infrastructure cannot be read.
    """
    tiers = read_infrastructure(settings.infrastructure)
    if not limits_of(tiers):
        yield UnlimitedCalls()
        return
    with rate_admission(tiers, settings.database_url, "serving") as admission:
        async with AsyncRateGate(admission) as gate:
            yield gate


def make_cluster_launcher(
    settings: Settings,
    owning: Callable[[Cluster, str, ObjectOwner | None], Owning] | None = None,
    callers: Launcher | None = None,
) -> ClusterLauncher:
    """Return what starts workers as pods of the settings' namespace. Needs a running event loop.

    `owning` maps the cluster, the namespace and the service there to what names the owner of
    workers; None: the service owns them. `callers` starts what calls endpoints; None: such are
    refused.

    InvalidInput if there is no way to the cluster, or the service is not there, NotAllowed if the
    account lacks a permission there, Unavailable if the cluster does not answer.
    """
    from circinus.deploy.kubernetes.access import DEPLOYER
    from circinus.deploy.kubernetes.launcher import ClusterLauncher
    from circinus.deploy.kubernetes.ownership import deployment_named
    from circinus.deploy.kubernetes.pod_template import read_pod_template
    from circinus.deploy.kubernetes.pods import RenderSettings
    from circinus.deploy.kubernetes.resources import MachineShape

    cluster, namespace = _cluster(settings.namespace, DEPLOYER)
    own = deployment_named(cluster, namespace, settings.owner) if settings.owner else None
    shape = RenderSettings(
        namespace=namespace,
        image=settings.worker_image,
        pull_policy=settings.worker_pull_policy,
        environment=settings.worker_environment,
        tls_secret=settings.worker_tls_secret,
        machine=MachineShape(cpu=settings.machine_cpu, memory=settings.machine_memory),
        allow_import=bool(settings.extra_pipelines),
        message_bytes=settings.message_limit_bytes,
        template=read_pod_template(settings.worker_pod_template),
    )
    rented = settings.scheduling_objective is Objective.COST
    return ClusterLauncher(
        cluster,
        shape,
        files_in(settings.worker_tls),
        start_timeout_s=_RENTED_S if rented else _START_S,
        callers=callers,
        release=settings.release,
        owner_of=owning(cluster, namespace, own) if owning else lambda _: own,
    )


def make_discovery(parts: ServiceParts) -> Discovery | None:
    """Return the watcher that sets the machines of shared tiers from the nodes of the cluster.

    None: the settings do not enable it. Raises as `make_orchestrator`.
    """
    settings = parts.settings
    if not settings.discovery:
        return None
    from circinus.deploy.kubernetes.access import DISCOVERY
    from circinus.deploy.kubernetes.nodes import Discovery
    from circinus.deploy.kubernetes.pod_template import read_pod_template
    from circinus.deploy.kubernetes.resources import pool_requirements

    return Discovery(
        cluster=_cluster("", DISCOVERY)[0],
        tiers=counted_pools(parts.infrastructure, parts.objective),
        report=parts.capacity.set_machines,
        least={"cpu": settings.machine_cpu, "memory": settings.machine_memory},
        tolerations=read_pod_template(settings.worker_pod_template).tolerations,
        own=pool_requirements(parts.infrastructure),
    )


def counted_pools(infrastructure: Infrastructure, objective: Objective) -> tuple[str, ...]:
    """Return the shared tiers, or types, whose machines are the nodes that there are.

    Rented ones have their nodes once pods wait for them, so those are as many as stated: the
    limit.
    """
    rented = objective is Objective.COST
    shared = (tier for tier in infrastructure.tiers if not tier.dedicated)
    pools = ((name, pool) for tier in shared for name, pool in tier.pools.items())
    return tuple(name for name, pool in pools if not (rented and pool.price_usd_per_hour > 0))


def _cluster(namespace: str | None, needs: Sequence[Permission]) -> tuple[Cluster, str]:
    """Return the cluster, and the namespace in which permissions are held; None: this pod's."""
    from circinus.deploy.kubernetes.access import require_access
    from circinus.deploy.kubernetes.api import Cluster, own_namespace
    from circinus.deploy.kubernetes.api import connect as connect_cluster

    cluster = Cluster(connect_cluster())
    namespace = own_namespace() if namespace is None else namespace
    require_access(cluster, namespace, needs)
    return cluster, namespace
