"""The parts of the service and of its planning workers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Protocol

from api.bootstrap.knowledge import JournalledMeasurements, Remembered
from api.bootstrap.registry import RegisteredPipelines
from api.executor_choice import ExecutorChoice
from api.fingerprints import pipeline_fingerprint
from api.query_file import read_infrastructure
from api.quotas import read_quotas
from api.services.capacity import Capacity
from api.services.catalogue import Catalogue
from api.services.deployer import Deployer
from api.services.knowledge import MeasurementSource
from api.settings import Settings
from api.store.checkpoint import SqlCheckpoints
from api.store.engine import Durability, connect
from api.store.history import SqlHistory
from api.store.journal import SqlJournal, edition_of
from api.store.latencies import SqlLatencies
from api.store.migrate import migrate
from api.store.schedule_sql import SqlScheduleStore
from api.store.schedule_store import ScheduleStore
from api.store.sql import SqlStore
from api.store.store import Store
from deploy.cgroups import available
from deploy.instances import Launcher
from deploy.local import LocalLauncher
from deploy.orchestrator import Orchestrator, OrchestratorSettings
from deploy.prefix_files import PrefixFiles
from deploy.tls import files_in
from pipelines.clock import Clock, SystemClock
from pipelines.errors import InvalidInput
from pipelines.graph import PipelineGraph
from pipelines.infrastructure import Infrastructure
from pipelines.pipeline import Pipeline
from profiler.journal import Journal
from profiler.prefix_cache import EntryStore
from scheduler.ageing import Ageing
from scheduler.dispatch.policies import dispatch_policy
from scheduler.policies import Terms, scheduling_policy
from scheduler.priced import Migration
from scheduler.rolling import Upkeep


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a service is made of.

    Attributes:
        settings: Of the operator.
        infrastructure: Planned for.
        catalogue: Pipelines offered.
        store: Of queries; its tables exist.
        clock: Of everything.
        schedules: The store of schedules, in the same database.
        upkeep: How schedules are made.
        quotas: Of tenants.
        measurements: Of queries.
    """

    settings: Settings
    infrastructure: Infrastructure
    catalogue: Catalogue
    store: Store
    clock: Clock
    schedules: ScheduleStore
    upkeep: Upkeep
    measurements: MeasurementSource
    quotas: Mapping[str, float] = field(default_factory=dict)


def make_parts(settings: Settings) -> Parts:
    """Give the parts of a service; the database is brought up to date.

    Raises:
        InvalidInput: If a setting breaks a rule.
    """
    engine = connect(settings.database_url)
    migrate(engine)
    return Parts(
        settings=settings,
        infrastructure=read_infrastructure(settings.infrastructure),
        catalogue=RegisteredPipelines.of(settings.extra_pipelines),
        store=SqlStore(engine),
        clock=SystemClock(),
        schedules=SqlScheduleStore(engine),
        upkeep=_upkeep(settings),
        quotas=read_quotas(settings.quotas),
        measurements=JournalledMeasurements(settings.database_url),
    )


def _upkeep(settings: Settings) -> Upkeep:
    price = settings.migration_price
    terms = Terms(migration=None if price is None else Migration(price=price))
    return Upkeep(
        policy=scheduling_policy(settings.chosen_method.scheduling, terms),
        ageing=Ageing(
            growth_s=settings.ageing_growth_s,
            limit_s=settings.ageing_limit_s,
            turn_s=settings.ageing_turn_s,
        ),
        every_s=settings.reschedule_s,
    )


def make_deployer(parts: Parts) -> Deployer:
    """Give what runs deployments. Needs a running event loop.

    Raises:
        InvalidInput: If there is no way to the cluster in which they should run.
        NotAllowed: If the account lacks a permission there.
        Unavailable: If the cluster does not answer.
    """
    if parts.settings.target == "kubernetes":
        return _cluster_deployer(parts)
    launcher = LocalLauncher(
        logs=parts.settings.worker_logs,
        cgroups=available(),
        allow_import=bool(parts.settings.extra_pipelines),
    )
    return _orchestrator(parts, launcher)


def _cluster_deployer(parts: Parts) -> Deployer:
    # The Kubernetes client: only when asked to
    from deploy.kubernetes.access import DEPLOYER, require_access
    from deploy.kubernetes.api import Cluster
    from deploy.kubernetes.connection import connect as connect_cluster
    from deploy.kubernetes.connection import own_namespace
    from deploy.kubernetes.deployer import ClusterDeployer
    from deploy.kubernetes.launcher import ClusterLauncher
    from deploy.kubernetes.worker_objects import WorkerShape

    settings = parts.settings
    cluster = Cluster(connect_cluster())
    namespace = settings.namespace or own_namespace()
    require_access(cluster, namespace, DEPLOYER)
    shape = WorkerShape(
        namespace=namespace,
        image=settings.worker_image,
        pull_policy=settings.worker_pull_policy,
        environment=settings.worker_environment,
        tls_secret=settings.worker_tls_secret,
        machine_cpu=settings.machine_cpu,
        machine_memory=settings.machine_memory,
        allow_import=bool(settings.extra_pipelines),
    )
    launcher = ClusterLauncher(cluster, shape, files_in(settings.worker_tls))
    return ClusterDeployer(_orchestrator(parts, launcher), launcher)


class Watching(Protocol):
    """Follows something outside, in a thread of its own."""

    def start(self) -> None:
        """Begin; returns at once."""

    def stop(self) -> None:
        """Tell nothing more."""


def make_discovery(parts: Parts, capacity: Capacity) -> Watching | None:
    """Give what sets the machines of shared tiers from the nodes of the cluster.

    None: the operator of the service did not ask for it.

    Raises:
        InvalidInput: If there is no way to the cluster.
        NotAllowed: If the account may not see its nodes.
        Unavailable: If the cluster does not answer.
    """
    settings = parts.settings
    if not settings.discovery:
        return None
    from deploy.kubernetes.access import DISCOVERY, require_access
    from deploy.kubernetes.api import Cluster
    from deploy.kubernetes.connection import connect as connect_cluster
    from deploy.kubernetes.nodes import Discovery

    cluster = Cluster(connect_cluster())
    require_access(cluster, "", DISCOVERY)
    return Discovery(
        cluster=cluster,
        tiers=tuple(tier.name for tier in parts.infrastructure.tiers if not tier.dedicated),
        told=capacity.set_machines,
        least={"cpu": settings.machine_cpu, "memory": settings.machine_memory},
    )


def _orchestrator(parts: Parts, launcher: Launcher) -> Orchestrator:
    """Give what starts and ends instances, and sends requests to them."""

    def graph_of(reference: str) -> PipelineGraph:
        for name in parts.catalogue.names:
            if parts.catalogue.reference(name) == reference:
                return parts.catalogue.pipeline(name).graph
        raise InvalidInput.of("pipeline", "must be registered", reference)

    memory = SqlLatencies(connect(parts.settings.database_url, Durability.PROCESS))
    return Orchestrator(
        parts.infrastructure,
        launcher,
        graph_of,
        dispatch_policy(parts.settings.chosen_method.dispatch),
        parts.clock,
        OrchestratorSettings(memory=memory),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningParts:
    """What a planning worker is made of.

    Attributes:
        capacity: Machines planned for.
        catalogue: Pipelines offered.
        store: Of queries.
        clock: Of everything.
        database_url: For journals.
        outputs: Of operators, shared with other workers and queries; None: not kept.
        executor: Runs operators.
        logs: Folder for the logs of deployed workers.
    """

    capacity: Capacity
    catalogue: Catalogue
    store: Store
    clock: Clock
    database_url: str
    outputs: EntryStore | None = None
    executor: ExecutorChoice = field(default_factory=ExecutorChoice)
    logs: Path = Path()

    def journal(self, query_id: str, pipeline: Pipeline, worker: str | None) -> Journal:
        """Give the journal of a query, which the worker holds."""
        engine = connect(self.database_url, Durability.PROCESS)
        return SqlJournal(engine, query_id, edition_of(pipeline), worker)

    def checkpoints(self, worker: str | None) -> SqlCheckpoints:
        """Give what the measurements of queries that the worker holds were made for."""
        return SqlCheckpoints(connect(self.database_url), worker)

    def remembered(self, pipeline: Pipeline) -> Remembered:
        """Give what earlier queries measured of a pipeline."""
        history = SqlHistory(connect(self.database_url))
        return Remembered(store=history, fingerprint=pipeline_fingerprint(pipeline))


def make_planning_parts(settings: Settings) -> PlanningParts:
    """Give the parts of a planning worker; the tables must exist.

    What planning imports is loaded here, so that the first query need not wait for it.
    """
    import_module("planner.search")
    folder = settings.outputs
    engine = connect(settings.database_url)
    clock = SystemClock()
    stated = read_infrastructure(settings.infrastructure)
    return PlanningParts(
        capacity=Capacity(stated=stated, store=SqlScheduleStore(engine), clock=clock),
        catalogue=RegisteredPipelines.of(settings.extra_pipelines),
        store=SqlStore(engine),
        clock=clock,
        database_url=settings.database_url,
        outputs=None if folder is None else PrefixFiles(folder, settings.outputs_limit_bytes),
        executor=settings.executor_choice,
        logs=settings.worker_logs,
    )
