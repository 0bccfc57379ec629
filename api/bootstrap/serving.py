"""The parts of the service and of its planning workers."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from circinus.api.bootstrap.parts import parts_of
from circinus.api.bootstrap.pods import Owning, make_cluster_launcher
from circinus.api.bootstrap.registry import RegisteredPipelines
from circinus.api.query_file import read_infrastructure
from circinus.api.settings import ExecutorKind, Settings
from circinus.api.store.bills import SqlBills
from circinus.api.store.engine import Durability, connect, migrate
from circinus.api.store.failures import DatabaseFull
from circinus.api.store.history import SqlLatencies
from circinus.api.store.keys import SqlKeys
from circinus.api.store.ownership import owned
from circinus.api.store.store import Store
from circinus.api.use_cases.examples import ExamplesHere, ExampleSource
from circinus.api.use_cases.parts import ServiceParts
from circinus.deploy.local.cgroups import available
from circinus.deploy.local.launcher import LocalLauncher
from circinus.deploy.profiling.example_files import ExampleFiles
from circinus.deploy.runtime.calls import CallGate, UnlimitedCalls
from circinus.deploy.runtime.heap import freeze_heap
from circinus.deploy.runtime.instances import Launcher
from circinus.deploy.runtime.orchestrator import Orchestrator
from circinus.pipelines import checks
from circinus.pipelines.clock import SystemClock
from circinus.scheduler.dispatch.policies import dispatch_policy

if TYPE_CHECKING:  # the Kubernetes client: only when asked to
    from circinus.deploy.kubernetes.api import Cluster
    from circinus.deploy.kubernetes.nodes import Discovery
    from circinus.deploy.kubernetes.ownership import ObjectOwner


def require_fit(settings: Settings) -> None:
    """Raise InvalidInput for what a service cannot start with; it is told before all else."""
    RegisteredPipelines.of(settings.extra_pipelines)
    alone = settings.executor_choice.kind is ExecutorKind.IN_PROCESS
    rule = (
        "must be pool, worker:TIER, ray or ray:ADDRESS in a service: what hangs must not hold it"
    )
    checks.require(not alone, "executor", rule, settings.executor)


@contextmanager
def opened_parts(settings: Settings) -> Iterator[ServiceParts]:
    """Return the parts of the one service of its database, which is brought up to date.

    InvalidInput if the settings are unfit; DatabaseFailed if the database is, or cannot be
    reached, or has another service. A full disk does not keep it from starting.
    """
    require_fit(settings)
    engine = connect(settings.database_url)
    name = f"process {os.getpid()} on {socket.gethostname()}, port {settings.port}"
    with owned(engine, name) as require_owned:
        migrate(engine)
        with closing(Store(engine)) as store:
            with suppress(DatabaseFull):
                store.try_writing()
            yield replace(parts_of(settings, store), require_owned=require_owned)


def make_orchestrator(
    settings: Settings, sockets: Path, gate: CallGate | None = None
) -> Orchestrator:
    """Return what starts and ends instances and sends them requests. Needs a running event loop.

    `sockets` is a folder of its own for those of local workers, which it empties. The gate gives
    leave to call endpoints; None: always.

    InvalidInput if there is no way to the cluster in which they should run, or their owner is
    not there, NotAllowed if the account lacks a permission there, Unavailable if the cluster does
    not answer.
    """
    here = LocalLauncher(
        logs=settings.worker_logs,
        cgroups=available(),
        allow_import=bool(settings.extra_pipelines),
        memory_bytes=settings.call_memory_bytes,
        message_bytes=settings.message_limit_bytes,
        sockets=sockets,
    )
    if settings.target != "kubernetes":
        return _orchestrator(settings, here, gate or UnlimitedCalls())
    # The Kubernetes client: only when asked to
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
    pods = make_cluster_launcher(settings, owning, callers=here)
    return _orchestrator(settings, pods, gate or UnlimitedCalls(), ClusterOrchestrator)


def make_examples(parts: ServiceParts) -> ExampleSource:
    """Return what makes the examples that requests name, apart unless operators run here, too."""
    settings = parts.settings
    if settings.executor_choice.kind is ExecutorKind.IN_PROCESS:
        return ExamplesHere(parts.catalogue.pipeline)
    return ExampleFiles(settings.datasets, settings.examples_limit_bytes)


def make_discovery(parts: ServiceParts) -> Discovery | None:
    """Return what sets the machines of shared tiers from the nodes of the cluster.

    None: the operator of the service did not ask for it. Raises as `make_orchestrator`.
    """
    settings = parts.settings
    if not settings.discovery:
        return None
    from circinus.deploy.kubernetes.access import DISCOVERY, require_access
    from circinus.deploy.kubernetes.api import Cluster
    from circinus.deploy.kubernetes.api import connect as connect_cluster
    from circinus.deploy.kubernetes.gpus import told_of_pools
    from circinus.deploy.kubernetes.nodes import Discovery
    from circinus.deploy.kubernetes.pod_template import read_pod_template

    cluster = Cluster(connect_cluster())
    require_access(cluster, "", DISCOVERY)
    shared = (tier for tier in parts.infrastructure.tiers if not tier.dedicated)
    return Discovery(
        cluster=cluster,
        tiers=tuple(name for tier in shared for name in tier.pools),
        told=parts.capacity.set_machines,
        least={"cpu": settings.machine_cpu, "memory": settings.machine_memory},
        tolerations=read_pod_template(settings.worker_pod_template).tolerations,
        own=told_of_pools(parts.infrastructure),
    )


def _orchestrator(
    settings: Settings,
    launcher: Launcher,
    gate: CallGate,
    kind: type[Orchestrator] = Orchestrator,
) -> Orchestrator:
    catalogue = RegisteredPipelines.of(settings.extra_pipelines)
    freeze_heap()
    engine = connect(settings.database_url, Durability.PROCESS)
    return kind(
        read_infrastructure(settings.infrastructure),
        launcher,
        catalogue.referred,
        dispatch_policy(settings.chosen_method.dispatch),
        SystemClock(),
        memory=SqlLatencies(engine),
        gate=gate,
        bills=SqlBills(engine),
    )
