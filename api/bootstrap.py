"""The composition root: the one place of the product that names concrete classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module

import numpy as np

from api.fingerprints import pipeline_fingerprint
from api.query_file import read_infrastructure
from api.quotas import read_quotas
from api.services.capacity import Capacity
from api.services.catalogue import Catalogue
from api.services.deployer import Deployer
from api.settings import Settings
from api.store.checkpoint import SqlCheckpoints
from api.store.engine import Durability, connect
from api.store.history import SqlHistory, open_history
from api.store.journal import SqlJournal, edition_of
from api.store.migrate import migrate
from api.store.schedule_sql import SqlScheduleStore
from api.store.schedule_store import ScheduleStore
from api.store.sql import SqlStore
from api.store.store import Store
from deploy.cgroups import available
from deploy.local import LocalLauncher
from deploy.orchestrator import Orchestrator
from deploy.prefix_files import PrefixFiles
from pipelines.clock import Clock, SystemClock
from pipelines.dataset import Dataset
from pipelines.errors import InvalidInput
from pipelines.graph import PipelineGraph
from pipelines.infrastructure import Infrastructure
from pipelines.pipeline import Pipeline, features_of
from pipelines.query import Query
from pipelines.registry import load_pipeline, registered
from pipelines.slo import Slo
from planner.bill import Cost
from planner.history import HistoryStore, QueryRecord
from planner.result import Observer, PlanningResult, Unobserved
from profiler.betting import Betting
from profiler.drawing import random_drawing
from profiler.execution import InProcess
from profiler.journal import Journal, MemoryJournal
from profiler.measure import Profiler
from profiler.prefix_cache import EntryStore, PrefixCache
from scheduler.ageing import Ageing
from scheduler.dispatch.plan_ahead import PlanAhead
from scheduler.priced import Migration, Priced
from scheduler.rolling import Upkeep

MOST_EARLIER = 10
"""Earlier queries that a search is told of (Circinus 4.2: the ten most similar)."""
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


def plan_offline(
    query: Query,
    infrastructure: Infrastructure,
    pipeline: Pipeline,
    dataset: Dataset,
    observer: Observer | None = None,
    *,
    kept: Kept | None = None,
) -> PlanningResult:
    """Give the plans of a query, measured in this process.

    Args:
        query: What to plan.
        infrastructure: Where it may run.
        pipeline: Of the query; what it needs once is prepared first.
        dataset: To profile on.
        observer: Hears of progress and may cancel; None: nobody.
        kept: Of earlier planning; None: nothing.
    """
    # gpytorch takes seconds: the service's process spares it
    from planner.cmbo import CmboFactory
    from planner.forecasting import Probes, from_earlier
    from planner.limits import Budget
    from planner.search import SearchSettings, search

    if pipeline.prepare is not None:
        pipeline.prepare()
    kept = kept or Kept()
    clock = SystemClock()
    rng = np.random.default_rng([query.seed, _ORDER_STREAM])
    features = features_of(pipeline, (example.input for example in dataset.examples))
    drawing = random_drawing(features, len(dataset), rng)
    evaluator = Profiler(
        pipeline=pipeline,
        dataset=dataset,
        order=drawing.order,
        executor=InProcess(clock),
        journal=kept.journal or MemoryJournal(),
        cache=PrefixCache(store=kept.outputs),
    )
    return search(
        query,
        infrastructure,
        evaluator,
        Betting(groups=drawing.groups),
        # `multi_fidelity` can give up on a feasible query: not for users until that is mended.
        settings=SearchSettings(
            strategy=CmboFactory(),
            patience=12,
            forecast=from_earlier(kept.bills, Budget.of(query.limits, infrastructure)) or Probes(),
        ),
        observer=Unobserved() if observer is None else observer,
        clock=clock,
        history=kept.history,
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
    """

    settings: Settings
    infrastructure: Infrastructure
    catalogue: Catalogue
    store: Store
    clock: Clock
    schedules: ScheduleStore
    upkeep: Upkeep
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
    """Give what runs deployments, as processes of this computer. Needs a running event loop."""
    settings = parts.settings
    launcher = LocalLauncher(
        logs=settings.worker_logs,
        cgroups=available(),
        allow_import=bool(settings.extra_pipelines),
    )

    def graph_of(reference: str) -> PipelineGraph:
        for name in parts.catalogue.names:
            if parts.catalogue.reference(name) == reference:
                return parts.catalogue.pipeline(name).graph
        raise InvalidInput.of("pipeline", "must be registered", reference)

    return Orchestrator(parts.infrastructure, launcher, graph_of, PlanAhead(), parts.clock)


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
    """

    capacity: Capacity
    catalogue: Catalogue
    store: Store
    clock: Clock
    database_url: str
    outputs: EntryStore | None = None

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
    )
