"""Labels for `circinus plan`: those there are are read, those that are wanted are written.

One file has both: a line without `gold` is a question, and people answer by setting its score.
Measurements are stored from run to run, so that labels cost no measurement.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from circinus.api.bootstrap.planning import Remembered
from circinus.api.http.payload_json import payload_to_json
from circinus.api.library.inputs import LocalQuery
from circinus.api.library.memory import opened_journal
from circinus.api.schemas.labels import GoldLabel, LabelLine
from circinus.api.schemas.query import MetricRequest
from circinus.api.schemas.violations import checked
from circinus.api.settings import Settings
from circinus.api.store.interrupted import FileJournal
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.io.files import read_file
from circinus.pipelines.model.payload import Payload
from circinus.pipelines.model.plan import Plan
from circinus.planner.models.history import QueryRecord
from circinus.profiler.labelling import Labelling, WantedLabel

_MOST_BYTES = 1_000_000_000  # of a file of labels


@dataclass(kw_only=True)
class LabelDesk:
    """Reads the labels of one query and writes its questions."""

    labelling: Labelling
    journal: FileJournal
    history: tuple[QueryRecord, ...]  # that the journal's first run used
    lines: Sequence[LabelLine]  # of the file
    file: Path

    @classmethod
    def opened(
        cls,
        query: LocalQuery,
        name: str,  # what the query is remembered by
        files: tuple[Path, Path | None],  # of the query, and of labels; None: beside the query's
        memory: Remembered | None,  # of earlier queries; None: of none
        settings: Settings,
    ) -> LabelDesk | None:
        """Return the desk of a query; None: a metric scores it, so no labels are needed.

        InvalidInput if the query names another judge than the pipeline has, or labels that cannot
        be read.
        """
        file, labels = files
        metric = _metric(query, labels)
        if metric is None:
            return None
        path = labels or file.with_suffix(".labels.jsonl")
        lines = _read(path, "--labels") if path.exists() or labels is not None else []
        gold = metric.gold
        gold_labels = _read(file.parent / gold, "metric.gold") if isinstance(gold, str) else gold
        journal, history = opened_journal(query, memory, settings, without=name)
        labelling = Labelling(
            dataset=query.dataset,
            journal=journal,
            labels=_golds(gold_labels) | _golds(lines),
            budget=metric.label_budget,
        )
        return cls(labelling=labelling, journal=journal, history=history, lines=lines, file=path)

    def close(self, plans: Sequence[Plan]) -> tuple[list[str], dict[str, object]]:
        """Write the wanted labels; return the lines on labels and judge, and their document."""
        wanted = list(self.labelling.wanted.values())
        if wanted:
            _write(self.file, self.lines, wanted)
        used, left = len(self.labelling.labels), self.labelling.left
        messages = [f"labels: {used} used, {len(wanted)} wanted, {left} left"]
        document: dict[str, object] = {"labels_used": used, "labels_left": left}
        document |= {"labels_wanted": len(wanted), "file": str(self.file) if wanted else None}
        if wanted:
            messages.append(f"wanted: put a score as gold into {self.file}, and plan again")
        if plans:
            off = self.labelling.bias(plans[0].configuration)
            bounds = f"{off.low:+.3f} to {off.high:+.3f} with 95 % confidence"
            messages.append(f"labels less judge, first plan: {off.value:+.3f} ({bounds})")
            document["bias"] = off
        return messages, document


def _metric(query: LocalQuery, labels: Path | None) -> MetricRequest | None:
    pipeline, metric = query.handed.pipeline, query.request.metric
    judge, name = pipeline.judge, pipeline.name
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


def _read(path: Path, field: str) -> list[LabelLine]:
    labels = []
    for number, line in enumerate(read_file(path, field, _MOST_BYTES).splitlines(), 1):
        if not line.strip():
            continue
        try:
            document = json.loads(line)
        except ValueError as error:
            text = line[:100].decode(errors="replace")
            raise InvalidInput.of(f"{field}, line {number}", "must be JSON", text) from error
        try:
            labels.append(checked(LabelLine, document))
        except InvalidInput as error:
            where = f"{field}, line {number}, "
            violations = [
                replace(violation, field=where + violation.field) for violation in error.violations
            ]
            raise InvalidInput(violations) from error
    return labels


def _golds(lines: Iterable[LabelLine | GoldLabel]) -> dict[str, float]:
    return {line.label: line.gold for line in lines if line.gold is not None}


def _write(path: Path, lines: Iterable[LabelLine], wanted: Iterable[WantedLabel]) -> None:
    """Write the answered labels, and then the wanted ones."""
    every = [line for line in lines if line.gold is not None] + [_line(one) for one in wanted]
    fields = ({"gold": line.gold, **line.model_dump(exclude_none=True)} for line in every)
    text = "".join(f"{json.dumps(each, ensure_ascii=False)}\n" for each in fields)
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


def _readable(payload: Payload) -> object:
    try:
        return payload_to_json(payload)
    except InvalidInput:  # a number that JSON has no form for: it is for reading only
        return repr(payload)
