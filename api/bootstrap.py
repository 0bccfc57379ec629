"""The composition root: the one place of the product that names concrete classes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

import numpy as np
from threadpoolctl import threadpool_limits

from api.executor_choice import ExecutorChoice, Kind
from api.fingerprints import pipeline_fingerprint
from api.query_file import read_infrastructure
from api.quotas import read_quotas
from api.services.capacity import Capacity
from api.services.catalogue import Catalogue
from api.services.deployer import Deployer
from api.services.knowledge import Examples, Measurements, MeasurementSource
from api.settings import Settings
from api.store.checkpoint import SqlCheckpoints
from api.store.engine import Durability, connect
from api.store.history import SqlHistory, open_history
from api.store.journal import SqlJournal, edition_of
from api.store.latencies import SqlLatencies
from api.store.migrate import migrate
from api.store.schedule_sql import SqlScheduleStore
from api.store.schedule_store import ScheduleStore
from api.store.sql import SqlStore
from api.store.store import Store
from deploy.attached import AttachedLauncher
from deploy.calibration import CalibrationSettings, Workload, all_calibrated
from deploy.cgroups import available
from deploy.emulation import emulated_speed
from deploy.instances import Launcher
from deploy.local import LocalLauncher
from deploy.orchestrator import Orchestrator, OrchestratorSettings
from deploy.prefix_files import PrefixFiles
from deploy.profiling_pool import PoolSettings, WorkerPool
from deploy.profiling_processes import ProcessPool
from deploy.tier_executor import ProfiledTier, TierExecutor
from deploy.tls import files_in
from pipelines.clock import Clock, SystemClock
from pipelines.configuration import ConfigurationSpace
from pipelines.dataset import Dataset
from pipelines.errors import InvalidInput
from pipelines.graph import PipelineGraph
from pipelines.infrastructure import Infrastructure, Tier
from pipelines.pipeline import Pipeline, features_of
from pipelines.query import Query
from pipelines.registry import load_pipeline, registered
from pipelines.slo import Slo
from planner.bill import Cost
from planner.history import HistoryStore, QueryRecord
from planner.result import Observer, PlanningResult, Unobserved
from profiler.betting import Betting
from profiler.columns import profiles_of
from profiler.drawing import Drawing, random_drawing
from profiler.execution import Executor, InProcess
from profiler.journal import Journal, MemoryJournal
from profiler.measure import Profiler
from profiler.prefix_cache import EntryStore, PrefixCache
from scheduler.ageing import Ageing
from scheduler.dispatch.plan_ahead import PlanAhead
from scheduler.priced import Migration, Priced
from scheduler.rolling import Upkeep

MOST_EARLIER = 10
"""Earlier queries that a search is told of (Circinus 4.2: the ten most similar)."""
_CALIBRATION_STREAM = 2
_LARGEST_DRAW = 1_000_000
_ORDER_STREAM = 1
"""Of the streams spawned from a query's seed: the order of its inputs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What earlier planning left.

    Attributes:
        journal: Of earlier measurements of the same query; None: there are none, and what is
            measured is forgotten.
        outputs: Of operators, shared by queries; None: none, and they are forgotten.
        bills: Of earlier queries of the same pipeline.
        history: What earlier queries on the same pipeline measured, the newest first.
    """

    journal: Journal | None = None
    outputs: EntryStore | None = None
    bills: tuple[Cost, ...] = ()
    history: tuple[QueryRecord, ...] = ()


def plan_offline(  # noqa: PLR0913 - a query's four parts, and two that have a default
    query: Query,
    infrastructure: Infrastructure,
    pipeline: Pipeline,
    dataset: Dataset,
    observer: Observer | None = None,
    *,
    kept: Kept | None = None,
    executor: Executor | None = None,
) -> PlanningResult:
    """Give the plans of a query, searched for in this process.

    Args:
        query: What to plan.
        infrastructure: Where it may run.
        pipeline: Of the query; what it needs once is prepared first.
        dataset: To profile on.
        observer: Hears of progress and may cancel; None: nobody.
        kept: Of earlier planning; None: nothing.
        executor: Runs operators; None: this process does.
    """
    # scipy's and the planner's imports take a second: the service's process spares it
    from planner.forecasting import Probes, from_earlier
    from planner.limits import Budget
    from planner.search import SearchSettings, search

    if pipeline.prepare is not None:
        pipeline.prepare()
    kept = kept or Kept()
    clock = SystemClock()
    drawing = drawing_of(query, pipeline, dataset)
    evaluator = Profiler(
        pipeline=pipeline,
        dataset=dataset,
        order=drawing.order,
        executor=executor or InProcess(clock),
        journal=kept.journal or MemoryJournal(),
        cache=PrefixCache(store=kept.outputs),
    )
    return search(
        query,
        infrastructure,
        evaluator,
        Betting(groups=drawing.groups),
        settings=SearchSettings(
            forecast=from_earlier(kept.bills, Budget.of(query.limits, infrastructure)) or Probes(),
        ),
        observer=Unobserved() if observer is None else observer,
        clock=clock,
        history=kept.history,
    )


@contextmanager
def opened_executor(
    choice: ExecutorChoice,
    reference: str,
    pipeline: Pipeline,
    infrastructure: Infrastructure,
    logs: Path,
) -> Iterator[Executor]:
    """Give what runs operators while planning; its workers end with the context.

    Args:
        choice: Which.
        reference: Names the pipeline, see `load_pipeline`.
        pipeline: The same.
        infrastructure: With the tier, for deployed workers.
        logs: Folder for the logs of deployed workers.

    Raises:
        InvalidInput: If the infrastructure has no such tier, or Ray is not installed.
    """
    clock = SystemClock()
    how = PoolSettings(
        workers=choice.workers, timeout_s=choice.timeout_s, memory_bytes=choice.memory_bytes
    )
    if choice.kind is Kind.IN_PROCESS:
        yield InProcess(clock)
    elif choice.kind is Kind.POOL:
        with ProcessPool(reference, clock, how) as pool:
            yield pool
    elif choice.kind is Kind.RAY:
        with _ray_executor(choice.detail, reference, clock, how) as actors:
            yield actors
    else:
        tier = infrastructure.tier(choice.detail)
        launcher = LocalLauncher(
            logs=logs,
            cgroups=available(),
            allow_import=":" in reference,
            memory_bytes=how.memory_bytes,
        )
        place = ProfiledTier(tier=tier, speeds=_profiled_speeds(tier, pipeline.graph))
        with TierExecutor(
            reference, pipeline.graph, place, launcher, clock, settings=how
        ) as deployed:
            yield deployed


def _profiled_speeds(tier: Tier, graph: PipelineGraph) -> dict[str, float]:
    """Give what an operator's seconds on a worker of the tier are worth on the reference machine.

    An emulated tier is this computer, and only its waits are to be taken out again: a worker that
    profiles is as warm as this process would be, so that what a calibration found is not in it.
    """
    names = zip(graph.operators, graph.classes, strict=True)
    if tier.emulated:
        return {operator.name: emulated_speed(tier) for operator, _ in names}
    return {operator.name: tier.speed_of(name) for operator, name in names}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """Which samples to calibrate with.

    Attributes:
        configurations: How many, drawn at random.
        inputs: Examples for each of them.
        seed: Of both.
    """

    configurations: int
    inputs: int
    seed: int


def calibrated_infrastructure(
    infrastructure: Infrastructure,
    named: tuple[str, Pipeline],
    sampling: Sampling,
    settings: CalibrationSettings,
    *,
    addresses: Mapping[str, str],
    logs: Path,
) -> Infrastructure:
    """Give the infrastructure with the speed factors of its tiers, measured with one pipeline.

    Args:
        infrastructure: Whose tiers; those without a machine are left out.
        named: Reference and pipeline; what it needs once is prepared first.
        sampling: Which samples.
        settings: How.
        addresses: Tier -> address of a worker that runs; one is started for the others. Those on
            other computers are called with the certificates in `Settings.worker_tls`.
        logs: Folder for the logs of workers.

    Raises:
        InvalidInput: If the pipeline brings no examples.
    """
    reference, pipeline = named
    if pipeline.examples is None:
        raise InvalidInput.of("pipeline", "must bring examples", pipeline.name)
    if pipeline.prepare is not None:
        pipeline.prepare()
    space = ConfigurationSpace(pipeline.graph)
    rng = np.random.default_rng([sampling.seed, _CALIBRATION_STREAM])
    count = min(sampling.configurations, space.size)
    numbers = rng.choice(min(space.size, _LARGEST_DRAW), count, replace=False).tolist()
    dataset = pipeline.examples(sampling.inputs, sampling.seed)
    workload = Workload(
        reference=reference,
        pipeline=pipeline,
        configurations=[space.configuration(number) for number in numbers],
        inputs=[example.input for example in dataset.examples],
    )
    started = LocalLauncher(logs=logs, cgroups=available(), allow_import=":" in reference)
    launcher = AttachedLauncher(addresses, started, files_in(Settings().worker_tls))

    with threadpool_limits(1):  # a machine of a local tier is one core
        tiers = asyncio.run(
            all_calibrated(infrastructure.tiers, workload, launcher, SystemClock(), settings)
        )
    return replace(infrastructure, tiers=tuple(tiers))


def _ray_executor(
    address: str, reference: str, clock: Clock, settings: PoolSettings
) -> WorkerPool:
    if find_spec("ray") is None:
        raise InvalidInput.of("executor", "must be another one: circinus[ray] is missing", "ray")
    ray = import_module("deploy.ray_executor")  # an extra: only where it is asked for
    ray.connect(address or None)
    pool: WorkerPool = ray.RayExecutor(reference, clock, settings)
    return pool


def drawing_of(query: Query, pipeline: Pipeline, dataset: Dataset) -> Drawing:
    """Give the order in which a query's inputs are drawn: equal queries, equal orders."""
    rng = np.random.default_rng([query.seed, _ORDER_STREAM])
    features = features_of(pipeline, (example.input for example in dataset.examples))
    return random_drawing(features, len(dataset), rng)


@dataclass(frozen=True, slots=True)
class JournalledMeasurements:
    """A `MeasurementSource` of what planning workers wrote into a database."""

    database_url: str

    def of(
        self, query_id: str, query: Query, pipeline: Pipeline, examples: Examples
    ) -> Measurements:
        """See `MeasurementSource.of`."""
        if pipeline.examples is None:
            raise InvalidInput.of("pipeline", "must bring examples", pipeline.name)
        dataset = pipeline.examples(examples.count, examples.seed)
        drawing = drawing_of(query, pipeline, dataset)
        journal = SqlJournal(connect(self.database_url), query_id, edition_of(pipeline))
        operators = len(pipeline.graph.operators)
        return Measurements(
            profiles=profiles_of(journal.everything(), drawing.order, operators),
            population=len(drawing.order),
            rule=Betting(groups=drawing.groups),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """What one version of a pipeline was found to do in earlier queries.

    Attributes:
        store: With the records of all.
        fingerprint: Of the version.
    """

    store: HistoryStore
    fingerprint: str

    def earlier(self, most: int = MOST_EARLIER) -> tuple[QueryRecord, ...]:
        """Give what the newest queries measured, the newest first."""
        return tuple(self.store.earlier(self.fingerprint, most))

    def remember(self, query_id: str, slo: Slo, result: PlanningResult) -> None:
        """Keep what a query measured; nothing when it measured nothing."""
        if result.configurations:
            self.store.record(
                QueryRecord(
                    query=query_id,
                    fingerprint=self.fingerprint,
                    slo=slo,
                    configurations=result.configurations,
                )
            )


def remembered(pipeline: Pipeline, database_url: str) -> Remembered:
    """Give what a database remembers of a pipeline; its tables are brought up to date.

    Raises:
        InvalidInput: If it is no database URL.
        Unavailable: If the database cannot be opened.
    """
    return Remembered(store=open_history(database_url), fingerprint=pipeline_fingerprint(pipeline))


@dataclass(frozen=True, slots=True)
class RegisteredPipelines:
    """A `Catalogue` of the installed pipelines and those that the operator adds.

    Attributes:
        extra: Name -> `module:attribute`, for the operator's own.
    """

    extra: dict[str, str] = field(default_factory=dict)
    _loaded: dict[str, Pipeline] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def of(cls, references: tuple[str, ...]) -> RegisteredPipelines:
        """Give the catalogue with more pipelines, loaded for their names.

        Raises:
            InvalidInput: If one cannot be loaded, or has the name of another.
        """
        catalogue = cls()
        for reference in references:
            pipeline = load_pipeline(reference, allow_import=True)
            if pipeline.name in catalogue.names:
                raise InvalidInput.of("extra_pipelines", "must have new names", pipeline.name)
            catalogue.extra[pipeline.name] = reference
            catalogue._loaded[pipeline.name] = pipeline
        return catalogue

    @property
    def names(self) -> tuple[str, ...]:
        """See `Catalogue.names`."""
        return tuple(sorted({*registered(), *self.extra}))

    def pipeline(self, name: str) -> Pipeline:
        """See `Catalogue.pipeline`."""
        if name not in self._loaded:  # loading twice in a race gives equal pipelines
            self._loaded[name] = load_pipeline(name)
        return self._loaded[name]

    def reference(self, name: str) -> str:
        """See `Catalogue.reference`."""
        if name not in self.names:
            raise InvalidInput.of("pipeline", "must be registered", name)
        return self.extra.get(name, name)


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
    return Upkeep(
        policy=Priced(migration=None if price is None else Migration(price=price)),
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
        PlanAhead(),
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

    def journal(self, query_id: str, pipeline: Pipeline) -> Journal:
        """Give the journal of a query."""
        engine = connect(self.database_url, Durability.PROCESS)
        return SqlJournal(engine, query_id, edition_of(pipeline))

    @property
    def checkpoints(self) -> SqlCheckpoints:
        """What the measurements of queries were made for."""
        return SqlCheckpoints(connect(self.database_url))

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
