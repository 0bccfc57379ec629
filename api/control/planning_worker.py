"""A process that plans: claims queries one at a time, and stores how planning ended.

Queued queries are first, then served ones with a search, on the infrastructure as observed.

It shares nothing with the service but the database, and a pipe for its settings and its pulse.
Beats hold a query: a silent worker loses it. It ends with its parent, whatever ended that, also
before it has imported this module. While the database is away it waits, and retains its
results.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from typing import TypeVar

from circinus.api.bootstrap.calls import planning_gate
from circinus.api.bootstrap.execution import opened_executor
from circinus.api.bootstrap.parts import make_planning_parts
from circinus.api.bootstrap.planning import (
    PriorWork,
    Remembered,
    SharedRuns,
    pipeline_fingerprint,
    plan_query,
    planning_fingerprints,
)
from circinus.api.control.pulse import ProgressReporter, Pulse
from circinus.api.event_log import event, start_event_log, trouble
from circinus.api.phases import QueryPhase
from circinus.api.settings import Settings
from circinus.api.store.failures import DatabaseFailed
from circinus.api.store.journal import Checkpoint, StaleCheckpoint, edition_of
from circinus.api.store.records import PlanningEnding, StoredQuery, plan_documents, to_document
from circinus.api.use_cases.parts import ServiceParts
from circinus.api.use_cases.queries import earlier_bills
from circinus.deploy.methods import most_earlier
from circinus.deploy.profiling.checking import checked
from circinus.deploy.profiling.isolated import first_request
from circinus.deploy.profiling.warm import STARTER
from circinus.pipelines.backoff import Backoff
from circinus.pipelines.clock import Clock, SystemClock
from circinus.pipelines.errors import CircinusError
from circinus.pipelines.execution.calling import Permit
from circinus.pipelines.model.configuration import Configuration
from circinus.pipelines.model.endpoints import Usage
from circinus.pipelines.model.plan import with_known_memory
from circinus.pipelines.model.query import PlanningLimits
from circinus.planner.search.result import (
    PlanningOutcome,
    PlanningPhase,
    PlanningProgress,
    PlanningResult,
    PlanningSummary,
)
from circinus.profiler.journal import Journal, MeasuredInput
from circinus.profiler.spending import Ledger, Spent

IDLE_S = 0.1
"""Between two looks at an empty queue."""
_PAUSES = Backoff(0.1, 2.0)
T = TypeVar("T")
_LOG = logging.getLogger("circinus.api.control.planning_worker")


def run_worker(settings: Settings, worker: str, pulse: Pulse) -> None:
    """Plan queries until this process ends.

    `worker` names this process, unlike every other that ever was.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's interrupt is for the parent
    start_event_log(settings.log_level)
    parts = make_planning_parts(settings)
    pulse.start()
    event(_LOG, "worker.started", worker=worker, pid=os.getpid())
    shared = SharedRuns()
    with STARTER.used():  # what was imported to run operators stays for the next query
        while True:
            if not plan_next(parts, worker, pulse, shared):
                shared.forget()
                parts.clock.sleep(IDLE_S)


def plan_next(
    parts: ServiceParts,
    worker: str,
    pulse: Pulse | None = None,
    shared: SharedRuns | None = None,
) -> bool:
    """Plan the next query of the store; return whether there was one.

    Without a pulse no supervisor sees whether this process lives; without `shared` it reuses no
    runs of other queries.
    """
    pulse = pulse or Pulse(send=lambda _: None, clock=parts.clock)
    shared = shared or SharedRuns()
    patience = DatabasePatience(clock=parts.clock, waiting=pulse.waiting)
    record = _claimed(parts, worker, patience)
    if record is None:
        return False
    event(_LOG, "query.claimed", query_id=record.id, worker=worker)
    start = parts.clock.now()
    heart = ProgressReporter(parts.store, parts.clock, record.id, worker, pulse.cancelled)
    if record.latest is None:  # until the planner's first word there is something to see
        heart.progress(_begun(record.query.limits))
    with heart.beating(), pulse.planning(record.query.limits.response_s):
        ending = _ending(parts, record, heart, patience, shared)
    if heart.has_news:  # the database was away for the last beat
        patience(heart.beat)
    queue, at = parts.store.queue, parts.clock.timestamp()
    stored = patience(lambda: queue.finish(record.id, worker, ending, at=at))
    event(
        _LOG,
        "query.planned",
        query_id=record.id,
        phase=ending.phase.value,
        searched_on=record.searching is not None,
        plans=len(ending.plans),
        duration_s=round(parts.clock.now() - start, 3),
        kept=stored,
    )
    return True


def _claimed(parts: ServiceParts, worker: str, patience: DatabasePatience) -> StoredQuery | None:
    unheard = False  # a claim that failed may have been stored

    def claim() -> StoredQuery | None:
        nonlocal unheard
        queue, at = parts.store.queue, parts.clock.timestamp()
        if unheard:
            queue.release(worker, at=at, cause="the database went away")
        unheard = True
        return queue.claim(worker, at=at)

    return patience(claim)


def _begun(limits: PlanningLimits) -> PlanningProgress:
    """Return where planning is when nothing was measured yet."""
    return PlanningProgress(
        phase=PlanningPhase.PROBING,
        measured=0,
        failed=0,
        inputs=0,
        plans=0,
        spent_s=0.0,
        profiling_left_s=limits.profiling_s,
        elapsed_s=0.0,
        time_left_s=limits.response_s,
        best=None,
    )


def _ending(
    parts: ServiceParts,
    record: StoredQuery,
    heart: ProgressReporter,
    patience: DatabasePatience,
    shared: SharedRuns,
) -> PlanningEnding:
    try:
        result, notes = _planned(parts, record, heart, patience, shared)
        before = patience(lambda: [each.plan for each in parts.store.plans(record.id)])
        shortfall = result.shortfall
        words = result.stopped_because if shortfall is None else shortfall.sentence
        feasible = result.outcome is PlanningOutcome.FEASIBLE
        return PlanningEnding(
            phase=QueryPhase.WAITING if feasible else QueryPhase(result.outcome.value),
            message=notes + words,
            result=to_document(PlanningSummary.of(result)),
            plans=plan_documents(with_known_memory(result.plans, before)),
        )
    except CircinusError as error:
        shared.forget()
        trouble(_LOG, "query.refused", query_id=record.id, error=error)
        message = str(error)
    except Exception as error:  # noqa: BLE001 - the edge of the process: the next query goes on
        shared.forget()
        trouble(_LOG, "query.broken", query_id=record.id, error=error)
        message = f"planning broke off: {type(error).__name__}: {error}"
    return PlanningEnding(phase=QueryPhase.FAILED, message=message, result=None)


def _planned(
    parts: ServiceParts,
    record: StoredQuery,
    heart: ProgressReporter,
    patience: DatabasePatience,
    shared: SharedRuns,
) -> tuple[PlanningResult, str]:
    """Return the result of planning, and notes on its start, which may be empty.

    They say why it did not resume from a checkpoint, and have the remarks on the pipeline.
    """
    settings, data = parts.settings, record.request.data
    pipeline = parts.pipeline(record.query.pipeline)
    pipeline.make_ready()
    dataset = patience(lambda: parts.data(data, record.query.pipeline))
    memory = Remembered(store=parts.store.history, fingerprint=pipeline_fingerprint(pipeline))
    shared.begin(record.query.pipeline, parts.clock.now())
    cold = record.request.cold
    if cold or record.searching is not None:  # in another world operators may do other things
        shared.forget()
    now = Checkpoint(parts=planning_fingerprints(record.spec, dataset, pipeline))
    # What measurements are remembered by: on other data a query is another one.
    name = f"{record.id} on {now.parts['data']}"
    most = most_earlier(record.query.planning)
    earlier = () if cold else patience(lambda: memory.earlier(most))
    now = replace(now, history=tuple(r.query for r in earlier if r.query != name))
    checkpoint, refused = patience(lambda: _checkpoint(parts, record, now))
    # Operators run on the tiers that there are, whatever is observed of them.
    query, search = record.query, record.searching
    real = patience(parts.capacity.planned_for)
    tiers = real
    if search is not None:  # the query's own device is part of what was observed
        query = replace(query, device=None)
        tiers = patience(replace(parts.capacity, stated=search.observed).planned_for)
    journal = parts.store.journal(record.id, edition_of(pipeline), record.claimed_by)
    every = earlier if checkpoint.history == now.history else patience(memory.earlier)
    prior = PriorWork(
        journal=PatientJournal(journal=journal, patience=patience),
        outputs=None if cold else parts.outputs,
        shared=shared,
        shared_runs=record.planned.bill.shared_runs if record.planned else 0,
        ledger=PatientLedger(parts.store.ledger(record.id, record.claimed_by), patience),
        bills=patience(lambda: earlier_bills(parts.store, query.pipeline)),
        # A restart uses the same history as the first start, and takes the same steps.
        history=tuple(r for r in every if r.query in checkpoint.history),
    )
    reference = parts.catalogue.reference(query.pipeline)
    choice = settings.executor_choice
    check = checked(reference, pipeline, dataset.examples, cancelled=heart.cancelled)
    earlier_draws = record.planned.seen_to_draw if record.planned else ()
    prior = replace(prior, draws=tuple(dict.fromkeys((*earlier_draws, *check.draws))))
    logs, url = settings.worker_logs, settings.database_url
    with (
        planning_gate(query, tiers, pipeline, prior.ledger, url) as gate,
        opened_executor(choice, reference, pipeline, real, logs, gate.permits) as executor,
    ):
        result = plan_query(
            query,
            tiers,
            pipeline,
            dataset,
            heart,
            prior=prior,
            executor=executor,
            gate=gate,
        )
    patience(lambda: memory.remember(name, query, result))
    return result, refused + "".join(f"{remark}. " for remark in check.remarks)


def _checkpoint(
    parts: ServiceParts, record: StoredQuery, now: Checkpoint
) -> tuple[Checkpoint, str]:
    """Return the checkpoint of planning, and why it starts anew; empty: it resumes."""
    checkpoints = parts.store.checkpoints(record.claimed_by)
    try:
        return checkpoints.opened(record.id, now), ""
    except StaleCheckpoint as refusal:
        trouble(_LOG, "checkpoint.refused", query_id=record.id, cause=str(refusal))
        checkpoints.restart(record.id, now)
        return now, f"Planned anew: {refusal} "


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabasePatience:
    """Tries again, after pauses that double, what the database does not let be done."""

    clock: Clock
    waiting: Callable[[], AbstractContextManager[None]] = nullcontext  # entered while it waits

    def __call__(self, action: Callable[[], T]) -> T:
        """Return the result of a repeatable action: a failed attempt may have been stored."""
        try:
            return action()
        except DatabaseFailed:
            pass
        with self.waiting():
            failures = 0
            while True:
                failures += 1
                self.clock.sleep(_PAUSES.pause_s(failures))
                with suppress(DatabaseFailed):
                    return action()


@dataclass(frozen=True, slots=True, kw_only=True)
class PatientJournal:
    """A journal that waits for its database."""

    journal: Journal
    patience: DatabasePatience

    def recall(self, configuration: Configuration) -> Sequence[MeasuredInput]:
        """Return the measurements of a configuration."""
        return self.patience(lambda: self.journal.recall(configuration))

    def record(self, configuration: Configuration, measured: MeasuredInput) -> None:
        """Store one measurement."""
        self.patience(lambda: self.journal.record(configuration, measured))


@dataclass(frozen=True, slots=True)
class PatientLedger:
    """A ledger that waits for its database: no call is made until its money is reserved there."""

    ledger: Ledger
    patience: DatabasePatience

    def reserve(self, permit: Permit, limit_usd: float) -> bool:
        """Reserve the largest cost of a call; return whether the limit allows it."""
        return self.patience(lambda: self.ledger.reserve(permit, limit_usd))

    def settle(self, permit: Permit, used: Mapping[str, Usage]) -> None:
        """Replace what a call reserved by what it used."""
        self.patience(lambda: self.ledger.settle(permit, used))

    def spent(self) -> Mapping[str, Spent]:
        """Return what calls cost, by operator."""
        return self.patience(self.ledger.spent)


def _main(descriptor: str) -> None:
    channel, request = first_request(descriptor)
    settings = Settings(**json.loads(request["settings"]))
    pulse = Pulse(
        send=lambda complaint: channel.send(complaint.encode()),
        clock=SystemClock(),
        lease_s=settings.lease_s,
        grace_s=settings.planning_grace_s,
    )
    run_worker(settings, request["worker"], pulse)


if __name__ == "__main__":
    _main(*sys.argv[1:])
