"""The measurements of one query in the database: a restarted search pays for none of them again.

Its rows have the measurements; a checkpoint has their query, data, pipeline and versions. Where
one differs, resuming would mix figures of two things, so the checkpoint is refused. Each
record is a commit of its own; on SQLite one outlives a killed process, not a power cut
(`Durability.PROCESS`). That spares a wait for the disk, and lost inputs are measured again.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
from sqlalchemy import ColumnElement, Engine, case, delete, func, or_, select

from circinus.api.store.engine import insertion, reading, rows, writing
from circinus.api.store.queue import require_claim
from circinus.api.store.records import from_document, to_document
from circinus.api.store.tables import CheckpointRow, MeasurementRow
from circinus.pipelines.errors import CircinusError
from circinus.pipelines.execution.code_digest import code_digest
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.model.configuration import Configuration
from circinus.pipelines.model.profile import USAGE_FIELDS, Failure, FloatArray
from circinus.profiler.journal import MeasuredInput

_TYPE = np.dtype("<f8")
_ARRAYS = ("operator_s", "waited_s", "output_bytes", "used")
_TABLE = MeasurementRow.__table__
_KEY = ("query_id", "configuration", "input", "draw")
_ALIKE = ("input", "draw", "spent_s", "saved_s", "runs", "saved_runs", "calls_s", "calls_usd")
"""The common fields of a row, or a line of a file, and a measurement."""


def plain_figures(measured: MeasuredInput) -> dict[str, Any]:
    """Return a measurement without its arrays, as rows and lines of files store it."""
    failure = measured.failure
    return {
        **{name: getattr(measured, name) for name in _ALIKE},
        "score": null_for_nan(measured.score),
        "input_bytes": null_for_nan(measured.input_bytes),
        "failed_operator": None if failure is None else failure.operator,
        "failure": None if failure is None else failure.cause,
    }


def restored(stored: Any, **arrays: Any) -> MeasuredInput:  # noqa: ANN401 - a row, or a line
    """Return the measurement of which `plain_figures` and arrays were stored."""
    failure = None
    if stored.failed_operator is not None:
        failure = Failure(
            input=stored.input,
            draw=stored.draw,
            operator=stored.failed_operator,
            cause=stored.failure or "",
        )
    return MeasuredInput(
        **{name: getattr(stored, name) for name in _ALIKE},
        score=nan_for_null(stored.score),
        input_bytes=nan_for_null(stored.input_bytes),
        failure=failure,
        **arrays,
    )


def null_for_nan(value: float) -> float | None:
    """Return a value as JSON and columns hold it: NaN is null there."""
    return None if math.isnan(value) else float(value)


def nan_for_null(value: float | None) -> float:
    """Return the argument of `null_for_nan`."""
    return math.nan if value is None else value


class SqlJournal:
    """A `profiler.journal.Journal` of one query, which must be stored.

    What was measured of another `edition` of the pipeline is not recalled. To record, `worker`
    must hold the query; None: anybody may.
    """

    def __init__(
        self, engine: Engine, query_id: str, edition: str, worker: str | None = None
    ) -> None:
        self.query_id, self.edition, self.worker = query_id, edition, worker
        self._engine = engine
        insert = insertion(engine, MeasurementRow)
        renewed = {
            column.name: insert.excluded[column.name]
            for column in _TABLE.columns
            if column.name not in (*_KEY, "times")
        }
        # Stored again because it may not have arrived, a measurement counts once.
        another = or_(*(_TABLE.c[name].is_distinct_from(new) for name, new in renewed.items()))
        renewed["times"] = MeasurementRow.times + case((another, 1), else_=0)
        self._upsert = insert.on_conflict_do_update(index_elements=_KEY, set_=renewed)

    def recall(self, configuration: Configuration) -> Sequence[MeasuredInput]:
        """Return the measurements of a configuration."""
        key = self._key(configuration)
        return tuple(_measured(row) for row in self._rows(MeasurementRow.configuration == key))

    def everything(self) -> Sequence[tuple[Configuration, MeasuredInput]]:
        """Return every measurement of the query, in no order."""
        mine = f"{self.edition} "
        of_edition = MeasurementRow.configuration.startswith(mine, autoescape=True)
        return tuple(
            (_configuration(row.configuration[len(mine) :]), _measured(row))
            for row in self._rows(of_edition)
        )

    def _rows(self, wanted: ColumnElement[bool]) -> Sequence[MeasurementRow]:
        mine = select(MeasurementRow).where(MeasurementRow.query_id == self.query_id, wanted)
        return rows(self._engine, mine)

    def record(self, configuration: Configuration, measured: MeasuredInput) -> None:
        """Store one measurement; ClaimLost if the worker does not hold the query."""
        arrays = {name: getattr(measured, name) for name in _ARRAYS}
        values = {
            **plain_figures(measured),
            **{n: None if a is None else a.astype(_TYPE).tobytes() for n, a in arrays.items()},
            "query_id": self.query_id,
            "configuration": self._key(configuration),
            "times": 1,
            "varied": " ".join(measured.varied) or None,
        }
        with writing(self._engine) as session:
            require_claim(session, self.query_id, self.worker)
            session.connection().execute(self._upsert, values)

    def _key(self, configuration: Configuration) -> str:
        # As JSON: the knob values 1, 1.0, "1" and true are four different ones.
        return f"{self.edition} {json.dumps(configuration.values, separators=(',', ':'))}"


def edition_of(pipeline: Pipeline) -> str:
    """Return a short text that changes when measuring the pipeline could differ."""
    parts: list[object] = [(o.name, o.version, o.spec.after) for o in pipeline.by_name.values()]
    parts += [
        (o.name, [(c.endpoint, sorted(c.when.items())) for c in o.spec.all_calls], o.spec.draws)
        for o in pipeline.by_name.values()
        if o.spec.calls or o.spec.draws
    ]
    if (metric := pipeline.over_set) is not None:  # others score no earlier output
        parts.append(code_digest(metric.function, metric.arguments))
    return blake2b(repr((pipeline.name, parts)).encode(), digest_size=4).hexdigest()


def measurement_counts(engine: Engine, query_id: str) -> tuple[int, int]:
    """Return how many measurements a query has, and how many were paid for more than once."""
    again = func.count().filter(MeasurementRow.times > 1)
    wanted = select(func.count(), again).where(MeasurementRow.query_id == query_id)
    with reading(engine) as session:
        total, repeated = session.execute(wanted).one()
    return total, repeated


def _configuration(text: str) -> Configuration:
    return Configuration(tuple((o, k, value) for o, k, value in json.loads(text)))


def _array(data: bytes | None) -> FloatArray | None:
    return None if data is None else np.frombuffer(data, dtype=_TYPE).astype(np.float64)


def _measured(stored: MeasurementRow) -> MeasuredInput:
    arrays = {name: _array(getattr(stored, name)) for name in _ARRAYS}
    if (used := arrays["used"]) is not None:
        arrays["used"] = used.reshape(-1, USAGE_FIELDS)
    return restored(stored, **arrays, varied=tuple((stored.varied or "").split()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """What planning a query rests on."""

    parts: Mapping[str, str]  # part -> its fingerprint: `query`, `data`, `pipeline`, `versions`
    history: tuple[str, ...] = ()  # earlier queries that the search, and a restart, uses


class StaleCheckpoint(CircinusError):
    """Measurements were made for something else; the message names the change."""

    def __init__(self, query_id: str, stored_checkpoint: Checkpoint, now: Checkpoint) -> None:
        changed = [
            f"{part} was {stored_checkpoint.parts.get(part, 'unknown')}, is {value}"
            for part, value in now.parts.items()
            if stored_checkpoint.parts.get(part) != value
        ]
        super().__init__(
            f"the checkpoint of {query_id} must be of the same query, data, pipeline and "
            f"versions, got a stale one: {'; '.join(changed)}."
        )


class SqlCheckpoints:
    """The checkpoints of all queries; `worker` must hold a query, None: without a claim."""

    def __init__(self, engine: Engine, worker: str | None = None) -> None:
        self.worker = worker
        self._engine = engine

    def opened(self, query_id: str, now: Checkpoint) -> Checkpoint:
        """Return the checkpoint to go on from: the stored one, else `now`, which is stored.

        StaleCheckpoint if one is stored for something else, which stays; ClaimLost as `restart`.
        """
        with writing(self._engine) as session:
            require_claim(session, query_id, self.worker)
            row = session.get(CheckpointRow, query_id)
            if row is None:
                session.add(CheckpointRow(query_id=query_id, document=to_document(now)))
                return now
            stored_checkpoint = from_document(Checkpoint, row.document)
        if dict(stored_checkpoint.parts) != dict(now.parts):
            raise StaleCheckpoint(query_id, stored_checkpoint, now)
        return stored_checkpoint

    def restart(self, query_id: str, now: Checkpoint) -> None:
        """Drop all measurements, store another checkpoint; ClaimLost if the worker lost it."""
        with writing(self._engine) as session:
            require_claim(session, query_id, self.worker)
            session.execute(delete(MeasurementRow).where(MeasurementRow.query_id == query_id))
            session.merge(CheckpointRow(query_id=query_id, document=to_document(now)))
