"""What earlier calls left for planning in a process of one's own, and what this one leaves."""

from __future__ import annotations

import json
from dataclasses import dataclass

from circinus.api.bootstrap.planning import (
    Remembered,
    planned_name,
    planning_fingerprints,
    remembered,
)
from circinus.api.library.inputs import LocalQuery
from circinus.api.settings import Settings
from circinus.api.store.interrupted import SUFFIX, FileJournal, FileLedger
from circinus.api.store.journal import Checkpoint
from circinus.deploy.methods import most_earlier
from circinus.pipelines.errors import Unavailable
from circinus.pipelines.execution.code_digest import code_digest
from circinus.pipelines.io.infrastructure_file import infrastructure_to_dict
from circinus.pipelines.model.payload import content_hash
from circinus.planner.models.history import QueryRecord
from circinus.planner.search.result import PlanningResult


def opened_journal(
    local: LocalQuery, memory: Remembered | None, settings: Settings, *, without: str = ""
) -> tuple[FileJournal, tuple[QueryRecord, ...]]:
    """Return the journal of an interrupted run of a query, with any labels, and the history.

    History has the records of earlier queries that its first run used, except the one `without`.
    """
    pipeline, document = local.handed.pipeline, local.request.document
    document.pop("metric", None)
    tiers = json.dumps(infrastructure_to_dict(local.infrastructure), sort_keys=True)
    score = pipeline.score if pipeline.judge is None else pipeline.judge.judge
    code = code_digest([(one.run, one.run_batch) for one in pipeline.operators], score)
    parts = planning_fingerprints(document, local.dataset, pipeline)
    parts |= {"code": code, "infrastructure": content_hash(tiers)}
    history = _history(memory, most_earlier(local.query.planning), without)
    now = Checkpoint(parts=parts, history=tuple(record.query for record in history))
    journal = FileJournal.opened(settings.interrupted, now)
    if journal.taken_over:
        known = _history(memory, None, without)
        history = tuple(record for record in known if record.query in journal.checkpoint.history)
    return journal, history


def _history(memory: Remembered | None, most: int | None, without: str) -> tuple[QueryRecord, ...]:
    records = () if memory is None else memory.earlier(most)
    return tuple(record for record in records if record.query != without)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlanningMemory:
    """What earlier calls left, and what this one leaves."""

    journal: FileJournal  # of this very call, if it was interrupted before
    ledger: FileLedger  # of what its calls cost
    earlier: Remembered | None  # of other queries on the pipeline; None: of none
    history: tuple[QueryRecord, ...] = ()  # what those measured
    remarks: tuple[str, ...] = ()  # on these

    @classmethod
    def of(cls, local: LocalQuery, settings: Settings) -> PlanningMemory:
        """Open the results of earlier calls for a query."""
        remarks, earlier = list[str](), None
        if not local.request.cold:
            try:
                earlier = remembered(local.handed.pipeline, settings.database_url)
            except Unavailable as error:
                remarks.append(f"planned from nothing: {error}")
        journal, history = opened_journal(local, earlier, settings)
        if count := journal.taken_over:
            remarks.append(f"went on from {count} measurements of a call that was interrupted")
        return cls(
            journal=journal,
            ledger=FileLedger(journal.path.with_suffix(SUFFIX)),
            earlier=earlier,
            history=history,
            remarks=tuple(remarks),
        )

    def save(self, local: LocalQuery, result: PlanningResult, *, interrupted: bool) -> list[str]:
        """Store the measurements, for this call if it was interrupted, else for others.

        Return remarks on what could not be saved.
        """
        if interrupted:
            trouble = self.journal.trouble or self.ledger.trouble
            return [f"not stored for another call: {trouble}"] if trouble else []
        self.journal.forget()
        self.ledger.forget()
        if self.earlier is not None:
            name = planned_name(local.handed.pipeline, local.dataset, local.query)
            try:
                self.earlier.remember(name, local.query, result)
            except Unavailable as error:  # the plans were paid for all the same
                return [f"not remembered: {error}"]
        return []
