"""Labels for `circinus plan`: those there are are read, those that are wanted are written.

One file has both: a line without `gold` is a question, and whoever answers it puts the score
there. What was measured is kept from run to run, so that labels cost no measurement.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from circinus.api.bootstrap.planning import Remembered, planning_fingerprints
from circinus.api.http.payload_json import payload_to_json
from circinus.api.schemas.labels import GoldLabel, LabelLine
from circinus.api.schemas.query import MetricRequest, QueryRequest
from circinus.api.schemas.violations import checked
from circinus.api.settings import Settings
from circinus.api.store.interrupted import FileJournal
from circinus.api.store.journal import Checkpoint
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.execution.code_digest import code_digest
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.io.datasets import Dataset
from circinus.pipelines.io.files import read_file
from circinus.pipelines.io.infrastructure_file import infrastructure_to_dict
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.payload import Payload, content_hash
from circinus.pipelines.model.plan import Plan
from circinus.planner.models.history import QueryRecord
from circinus.profiler.labelling import Labelling, WantedLabel

_MOST_KEPT = 1000  # earlier queries looked through for those that a journal names
_MOST_BYTES = 1_000_000_000  # of a file of labels


class JudgedQuery(NamedTuple):
    """What is planned with labels."""

    file: Path  # the query file; the pipeline's name where there is none
    request: QueryRequest
    tiers: Infrastructure
    pipeline: Pipeline
    dataset: Dataset
    name: str  # what it is remembered by


@dataclass(kw_only=True)
class LabelDesk:
    """Where labels of one query come in, and questions go out."""

    labelling: Labelling
    journal: FileJournal
    history: tuple[QueryRecord, ...]  # that the journal's first run was told of
    lines: Sequence[LabelLine]  # of the file
    file: Path

    @classmethod
    def opened(
        cls,
        query: JudgedQuery,
        labels: Path | None,  # the file; None: beside the query's
        memory: Remembered | None,  # of earlier queries; None: of none
        settings: Settings,
    ) -> LabelDesk | None:
        """Return the desk of a query; None: a metric scores it, so no labels are needed.

        InvalidInput if the query names another judge than the pipeline has, or labels that cannot
        be read.
        """
        metric = _metric(query, labels)
        if metric is None:
            return None
        path = labels or query.file.with_suffix(".labels.jsonl")
        lines = _read(path, "--labels") if path.exists() or labels is not None else []
        gold, beside = metric.gold, query.file.parent
        given = _read(beside / gold, "metric.gold") if isinstance(gold, str) else gold
        journal, history = _journal(query, query.name, memory, settings)
        labelling = Labelling(
            dataset=query.dataset,
            journal=journal,
            labels=_golds(given) | _golds(lines),
            budget=metric.label_budget,
        )
        return cls(labelling=labelling, journal=journal, history=history, lines=lines, file=path)

    def close(self, plans: Sequence[Plan]) -> tuple[list[str], dict[str, object]]:
        """Write what is wanted; give what is to be told of labels and judge, and its document."""
        wanted = list(self.labelling.wanted.values())
        if wanted:
            _write(self.file, self.lines, wanted)
        used, left = len(self.labelling.labels), self.labelling.left
        told = [f"labels: {used} used, {len(wanted)} wanted, {left} left"]
        document: dict[str, object] = {"labels_used": used, "labels_left": left}
        document |= {"labels_wanted": len(wanted), "file": str(self.file) if wanted else None}
        if wanted:
            told.append(f"wanted: put a score as gold into {self.file}, and plan again")
        if plans:
            off = self.labelling.bias(plans[0].configuration)
            bounds = f"{off.low:+.3f} to {off.high:+.3f} with 95 % confidence"
            told.append(f"labels less judge, first plan: {off.value:+.3f} ({bounds})")
            document["bias"] = off
        return told, document


def _metric(query: JudgedQuery, labels: Path | None) -> MetricRequest | None:
    metric, judge, name = query.request.metric, query.pipeline.judge, query.pipeline.name
    if judge is None:
        if metric is not None or labels is not None:
            field = "metric" if metric is not None else "--labels"
            rule = (
                f"must be left out: pipeline {name} is scored by a metric, which needs no labels"
            )
            raise InvalidInput.of(field, rule, None if metric is None else metric.judge)
        return None
    if metric is None:
        rule = f"must be given: pipeline {name} is scored by a judge, {judge.name}"
        raise InvalidInput.of("metric", rule, None)
    if metric.judge != judge.name:
        rule = f"must be that of pipeline {name}, {judge.name}"
        raise InvalidInput.of("metric.judge", rule, metric.judge)
    return metric


def _journal(
    query: JudgedQuery, own: str, memory: Remembered | None, settings: Settings
) -> tuple[FileJournal, tuple[QueryRecord, ...]]:
    """Return what was measured for this query before, whatever labels there were."""
    pipeline, document = query.pipeline, query.request.document
    document.pop("metric", None)
    tiers = json.dumps(infrastructure_to_dict(query.tiers), sort_keys=True)
    judge = None if pipeline.judge is None else pipeline.judge.judge
    code = code_digest([(one.run, one.run_batch) for one in pipeline.operators], judge)
    parts = planning_fingerprints(document, query.dataset, pipeline)
    parts |= {"code": code, "infrastructure": content_hash(tiers)}
    found = _others(() if memory is None else memory.earlier(), own)
    now = Checkpoint(parts=parts, history=tuple(record.query for record in found))
    journal = FileJournal.opened(settings.interrupted, now)
    if journal.taken_over and memory is not None:  # it is told of what the first run was told of
        kept = memory.earlier(_MOST_KEPT)
        found = tuple(record for record in kept if record.query in journal.checkpoint.history)
    return journal, found


def _others(records: Sequence[QueryRecord], own: str) -> tuple[QueryRecord, ...]:
    """Return what other queries measured: what this one did changes with every run."""
    return tuple(record for record in records if record.query != own)


def _read(path: Path, field: str) -> list[LabelLine]:
    found = []
    for number, line in enumerate(read_file(path, field, _MOST_BYTES).splitlines(), 1):
        if not line.strip():
            continue
        try:
            document = json.loads(line)
        except ValueError as error:
            shown = line[:100].decode(errors="replace")
            raise InvalidInput.of(f"{field}, line {number}", "must be JSON", shown) from error
        try:
            found.append(checked(LabelLine, document))
        except InvalidInput as error:
            where = f"{field}, line {number}, "
            violations = [
                replace(violation, field=where + violation.field) for violation in error.violations
            ]
            raise InvalidInput(violations) from error
    return found


def _golds(lines: Iterable[LabelLine | GoldLabel]) -> dict[str, float]:
    return {line.label: line.gold for line in lines if line.gold is not None}


def _write(path: Path, lines: Iterable[LabelLine], wanted: Iterable[WantedLabel]) -> None:
    """Write what was answered, and then what is wanted."""
    every = [line for line in lines if line.gold is not None] + [_line(one) for one in wanted]
    text = "".join(f"{json.dumps(_saved(line), ensure_ascii=False)}\n" for line in every)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        rule = f"must be a file that can be written ({error.strerror})"
        raise InvalidInput.of("--labels", rule, str(path)) from error


def _line(one: WantedLabel) -> LabelLine:
    return LabelLine(
        label=one.label,
        input=one.input,
        given=_readable(one.payload),
        output=_readable(one.output),
        expected=_readable(one.expected),
        judge=one.judge,
        configuration=one.configuration.as_dict(),
    )


def _saved(line: LabelLine) -> dict[str, object]:
    told = line.model_dump()
    return {"gold": told.pop("gold"), **{k: v for k, v in told.items() if v is not None}}


def _readable(payload: Payload) -> object:
    try:
        return payload_to_json(payload)
    except InvalidInput:  # a number that JSON has no form for: it is for reading only
        return repr(payload)
