"""Planning in this process: the profiler, the search, and records of earlier queries.

Fingerprints are short texts that change whenever measuring or planning could differ.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import blake2b
from importlib.metadata import PackageNotFoundError, version
from math import inf

from circinus.api.bootstrap.calls import (
    PlanningGate,
    calling_here,
    calls_endpoints,
    calls_of,
    spending_of,
)
from circinus.api.store.history import SqlHistory, open_history
from circinus.api.store.journal import edition_of
from circinus.api.store.records import JsonObject
from circinus.deploy.methods import goes_to_the_end
from circinus.deploy.profiling.load import OtherLoad
from circinus.deploy.profiling.pool import OperatorSettings, WorkerPool
from circinus.deploy.workers.process import busy_s
from circinus.pipelines import checks
from circinus.pipelines.clock import Clock, SystemClock, Waits
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.io.datasets import Dataset
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.payload import content_hash
from circinus.pipelines.model.plan import Plan
from circinus.pipelines.model.query import Query
from circinus.planner.models.history import QueryRecord
from circinus.planner.search.bill import CallsCost, Cost
from circinus.planner.search.result import DRAWS, Observer, PlanningResult
from circinus.profiler.comparing import Comparisons
from circinus.profiler.execution import Executor, InProcess
from circinus.profiler.journal import Journal, MemoryJournal
from circinus.profiler.labelling import Labelling
from circinus.profiler.measure import Profiler
from circinus.profiler.prefix_cache import CacheEntry, EntryStore, PrefixCache
from circinus.profiler.set_scores import set_scores_of
from circinus.profiler.spending import Ledger, SpendingGate

_LASTS_S = 600.0  # of the first run


@dataclass(slots=True)
class SharedRuns:
    """An `EntryStore` of outputs, and the memory use of operators. One query at a time uses it.

    Registered names identify pipelines: the names of two `Pipeline` objects may be equal.
    """

    reused: int = field(default=0, init=False)
    """Runs of earlier queries that the present one did not have to make."""
    _pipeline: str = field(default="", init=False)
    _outputs: PrefixCache = field(default_factory=PrefixCache, init=False)
    _own: set[tuple[str, str]] = field(default_factory=set, init=False)  # of the present query
    _peaks: dict[str, dict[OperatorSettings, int]] = field(default_factory=dict, init=False)
    _began_s: float = field(default=inf, init=False)

    def begin(self, pipeline: str, now_s: float) -> None:
        """Plan a query of the pipeline registered by this name, at this time of the clock."""
        if now_s - self._began_s > _LASTS_S:
            self.forget()
        self._began_s = min(self._began_s, now_s)
        self._pipeline, self.reused = pipeline, 0
        self._own.clear()

    def get(self, fingerprint: str, content: str) -> CacheEntry | None:
        """See `EntryStore`."""
        entry = self._outputs.get(f"{self._pipeline}/{fingerprint}", content)
        self.reused += entry is not None and (fingerprint, content) not in self._own
        return entry

    def put(self, fingerprint: str, content: str, entry: CacheEntry) -> None:
        """See `EntryStore`."""
        self._own.add((fingerprint, content))
        self._outputs.put(f"{self._pipeline}/{fingerprint}", content, entry)

    def peaks(self, fingerprint: str) -> dict[OperatorSettings, int]:
        """Return `WorkerPool.peaks` of the pipeline with such a fingerprint, to add to."""
        return self._peaks.setdefault(f"{self._pipeline}/{fingerprint}", {})

    def forget(self) -> None:
        """Let nothing be reused that ran before."""
        self._outputs, self._peaks, self._began_s = PrefixCache(), {}, inf


_LEAST_OWN_S = 5.0
"""Of what planning may take beside running operators: starting them takes about two."""
_PACKAGES = ("circinus", "numpy", "scipy")
"""Whose versions decide what a search does with equal measurements."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorWork:
    """The results of earlier planning; where there are none, new results are not stored."""

    journal: Journal | None = None  # of measurements of the same query; None: there were none
    outputs: EntryStore | None = None  # of operators, shared by queries; None: there is no store
    shared: SharedRuns | None = None  # of queries that were planned just before; None: of none
    shared_runs: int = 0  # reused from others by the same query before
    bills: tuple[Cost, ...] = ()  # of earlier queries of the same pipeline
    history: tuple[QueryRecord, ...] = ()  # what those measured, the newest first
    ledger: Ledger | None = None  # costs of calls for the same query; None: they are not stored
    draws: tuple[str, ...] = ()  # operators with stochastic output that do not declare it


def plan_query(  # noqa: PLR0913 - a query's four parts, and two that have a default
    query: Query,
    infrastructure: Infrastructure,
    pipeline: Pipeline,
    dataset: Dataset,
    observer: Observer | None = None,
    *,
    prior: PriorWork | None = None,
    executor: Executor | None = None,
    gate: PlanningGate | None = None,
    labelling: Labelling | None = None,
) -> PlanningResult:
    """Return the plans of a query, searched for in this process; the pipeline is prepared first.

    The observer receives progress and may cancel. `prior` is of earlier planning; None: nothing.
    An executor runs operators; None: this process does, and a hanging operator blocks it.
    A pool ends its workers and the search when the search is cancelled or times out. Operators
    need the gate's permit to call, see `planning_gate`; None: a gate over the prior ledger.
    `labelling` checks the judge of a pipeline that has one: InvalidInput if it has and there is
    none, or the other way round.
    """
    declared = {*query.draws, *(one.name for one in pipeline.graph.operators if one.draws)}
    _require_judged(pipeline, labelling, declared)
    # scipy's parts take long to import: the service's process spares them
    from circinus.api.use_cases.knowledge import drawn
    from circinus.deploy.planning import planner_of

    pipeline.make_ready()
    limits, prior = query.limits, prior or PriorWork()
    # Planning takes no longer than its measurements, unless it is to use all of its time.
    if limits.own_s is None and not goes_to_the_end(query.planning):
        own_s = max(limits.profiling_s, _LEAST_OWN_S)
        query = replace(query, limits=replace(limits, own_s=own_s))
    clock = SystemClock()
    planner = planner_of(query.planning)
    if gate is None:
        gate = PlanningGate(spending=spending_of(query, infrastructure, pipeline, prior.ledger))
    over = _over(observer, query.limits.response_s, clock)
    gate.stop_when(over)
    waits = Waits(clock) if gate.rate is None else gate.rate.waits
    if isinstance(executor, WorkerPool):
        executor.stop_when(over)
        executor.waits = waits
        executor.longest_s = min(executor.longest_s, query.limits.profiling_s)
        if prior.shared is not None:
            executor.peaks = prior.shared.peaks(pipeline_fingerprint(pipeline))
    caller = calling_here(infrastructure, gate.permits, clock)
    drawing = drawn(planner, pipeline, dataset, query.seed)
    journal = prior.journal or MemoryJournal()
    evaluator = Profiler(
        pipeline=pipeline,
        dataset=dataset,
        order=drawing.order,
        executor=executor or InProcess(clock, caller, busy_s),
        journal=journal,
        # deviates: runs-outlive-a-session
        cache=PrefixCache(store=prior.outputs or prior.shared),
        caller=caller,
        ran=gate.spending.ran,
        comparisons=Comparisons(unlike={*prior.draws, *query.draws}),
    )
    load = OtherLoad(clock)
    result = planner.search(
        query,
        infrastructure,
        evaluator,
        drawing,
        forecast=planner.forecast(query, infrastructure, prior.bills),
        observer=observer,
        clock=clock,
        history=prior.history,
        called=_calls_of(pipeline, gate.spending),
        waits=waits,
        audit=labelling,
        scores=set_scores_of(pipeline, dataset, journal),
    )
    at_once = executor.at_once if isinstance(executor, WorkerPool) else evaluator.width
    of_runs = (*evaluator.remarks, *load.remarks(at_once))
    bill = result.bill
    if prior.shared is not None:
        bill = replace(bill, shared_runs=prior.shared_runs + prior.shared.reused)
        if of_runs or evaluator.graph.draws:  # others may lack the flag, or repeat draws
            prior.shared.forget()
    result = replace(result, plans=_with_memory(result.plans, executor), bill=bill)
    stochastic = tuple(name for name in prior.draws if name not in declared)
    return _with_remarks(result, stochastic, (*of_runs, *waits.remarks()))


def _calls_of(
    pipeline: Pipeline, spending: SpendingGate
) -> Callable[[], Sequence[CallsCost]] | None:
    """Return the meter of the cost of calls; None: nothing calls."""
    nothing = pipeline.judge is None and not calls_endpoints(pipeline)
    return None if nothing else partial(calls_of, spending)


def _require_judged(
    pipeline: Pipeline, labelling: Labelling | None, drawing: Collection[str]
) -> None:
    rule = "must be given for a pipeline that a judge scores, and for no other"
    checks.require((labelling is None) == (pipeline.judge is None), "metric", rule, pipeline.name)
    rule = "must draw nothing where a judge scores: a label is of one output"
    fits = labelling is None or not drawing
    checks.require(fits, f"pipeline {pipeline.name}.operators", rule, sorted(drawing))


def _with_memory(plans: Sequence[Plan], executor: Executor | None) -> tuple[Plan, ...]:
    """Return plans with the memory that workers had, where workers ran them."""
    if not isinstance(executor, WorkerPool):
        return tuple(plans)
    memory_of = executor.memory_of
    return tuple(
        replace(plan, memory_bytes=memory_of(plan.deployment.placement, plan.configuration))
        for plan in plans
    )


def _with_remarks(
    result: PlanningResult, stochastic: tuple[str, ...], more: tuple[str, ...]
) -> PlanningResult:
    """Add the operators that drew before the search, and more remarks, to a result."""
    remarks = (*(f"{name} {DRAWS}" for name in stochastic), *result.remarks, *more)
    return replace(result, remarks=remarks, seen_to_draw=(*stochastic, *result.seen_to_draw))


def _over(observer: Observer | None, response_s: float | None, clock: Clock) -> Callable[[], bool]:
    start = clock.now()
    late = inf if response_s is None else start + response_s
    return lambda: clock.now() > late or (observer is not None and observer.cancelled())


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """Measurements of the pipeline version with that fingerprint in earlier queries."""

    store: SqlHistory
    fingerprint: str

    def earlier(self, most: int | None = None) -> tuple[QueryRecord, ...]:
        """Return what so many newest queries measured, the newest first; None: all."""
        return tuple(self.store.earlier(self.fingerprint, most))

    def remember(self, query_id: str, query: Query, result: PlanningResult) -> None:
        """Store a query's measurements and planning method; nothing if it measured nothing."""
        if result.configurations:
            self.store.record(
                QueryRecord(
                    query=query_id,
                    fingerprint=self.fingerprint,
                    slo=query.slo,
                    configurations=result.configurations,
                ),
                query.planning,
            )


def remembered(pipeline: Pipeline, database_url: str) -> Remembered:
    """Return what a database remembers of a pipeline; its tables are brought up to date.

    InvalidInput if it is no database URL, Unavailable if the database cannot be opened.
    """
    return Remembered(store=open_history(database_url), fingerprint=pipeline_fingerprint(pipeline))


def planned_name(pipeline: Pipeline, dataset: Dataset, query: Query) -> str:
    """Return what a query that no service has is remembered by: another one has another name."""
    parts = (pipeline_fingerprint(pipeline), data_fingerprint(dataset), str(query.slo))
    return f"plan {content_hash(' '.join(parts))}"


def pipeline_fingerprint(pipeline: Pipeline) -> str:
    """Return `name@edition`: of the operators, their versions, order and knobs."""
    knobs = [(slot.key, slot.knob.values) for slot in pipeline.graph.slots]
    return f"{pipeline.name}@{edition_of(pipeline)}{_digest(repr(knobs).encode())}"


def planning_fingerprints(
    spec: JsonObject, dataset: Dataset, pipeline: Pipeline
) -> dict[str, str]:
    """Return what a checkpoint must agree with: of query, data, pipeline and versions."""
    text = json.dumps(spec, sort_keys=True, separators=(",", ":"))
    versions = [f"{package} {installed_version(package)}" for package in _PACKAGES]
    return {
        "query": _digest(text.encode()),
        "data": data_fingerprint(dataset),
        "pipeline": pipeline_fingerprint(pipeline),
        "versions": ", ".join([f"python {platform.python_version()}", *versions]),
    }


def data_fingerprint(dataset: Dataset) -> str:
    """Return the fingerprint of the inputs and expected outputs, in their order."""
    digest = blake2b(digest_size=8)
    for example in dataset.examples:
        digest.update(content_hash(example.input).encode())
        digest.update(content_hash(example.expected).encode())
    return digest.hexdigest()


def _digest(data: bytes) -> str:
    return blake2b(data, digest_size=4).hexdigest()


def installed_version(package: str) -> str:
    """Return the version of a package; `unknown` in a folder that was never installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"
