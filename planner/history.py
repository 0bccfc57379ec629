"""What earlier queries on the same pipeline measured: the records, and where they are kept.

A record holds figures, never inputs or scores of single inputs: means with counts and
spreads, so that a later query can weigh them by how well they are known. Other inputs may
be easier or harder: what carries over is for the strategy to learn.

The one rule: records of different fingerprints are never mixed. A fingerprint changes
whenever measuring the pipeline could give something else.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from threading import Lock
from typing import Protocol

import numpy as np

from pipelines import checks
from pipelines.configuration import Configuration, ConfigurationSpace
from pipelines.latency import Work
from pipelines.profile import FloatArray
from pipelines.slo import Slo


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigurationRecord:
    """What one query measured of one configuration.

    Attributes:
        configuration: What was measured.
        inputs: On how many inputs, `>= 1`.
        accuracy: Mean score, in [0, 1].
        deviation: Of single scores from it, `>= 0`; 0 when there is one.
        operator_s: Mean seconds of each operator on the reference machine, topological order.
        operator_deviation_s: Of single inputs from them, `>= 0`.
        output_bytes: Mean bytes that each operator hands on.
        input_bytes: Mean bytes of the inputs.
    """

    configuration: Configuration
    inputs: int
    accuracy: float
    deviation: float
    operator_s: tuple[float, ...]
    operator_deviation_s: tuple[float, ...]
    output_bytes: tuple[float, ...]
    input_bytes: float

    def __post_init__(self) -> None:
        checks.require(self.inputs >= 1, "record.inputs", "must be >= 1", self.inputs)
        checks.probability("record.accuracy", self.accuracy)
        checks.non_negative("record.deviation", self.deviation)
        checks.non_negative("record.input_bytes", self.input_bytes)
        operators = len(self.operator_s)
        for name in ("operator_s", "operator_deviation_s", "output_bytes"):
            values = getattr(self, name)
            rule = f"must have {operators} figures, one per operator"
            checks.require(len(values) == operators >= 1, f"record.{name}", rule, len(values))
            for value in values:
                checks.non_negative(f"record.{name}", value)

    @classmethod
    def of(
        cls,
        configuration: Configuration,
        scores: FloatArray,  # (n,)
        work: Work,
    ) -> ConfigurationRecord:
        """Give the record of scores and work on the same n >= 1 inputs, all finite."""
        return cls(
            configuration=configuration,
            inputs=len(scores),
            accuracy=float(np.clip(scores.mean(), 0.0, 1.0)),
            deviation=_deviations(scores[None, :])[0],
            operator_s=_floats(work.operator_s.mean(axis=1)),
            operator_deviation_s=_deviations(work.operator_s),
            output_bytes=_floats(work.output_bytes.mean(axis=1)),
            input_bytes=float(work.input_bytes.mean()),
        )

    @property
    def mean_work(self) -> Work:
        """The average input's work, n = 1."""
        return Work(
            operator_s=np.array(self.operator_s)[:, None],
            output_bytes=np.array(self.output_bytes)[:, None],
            input_bytes=np.array([self.input_bytes]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryRecord:
    """What one query measured.

    Attributes:
        query: Its id; a record replaces an older one of the same id.
        fingerprint: Of the pipeline, not empty.
        slo: What it asked for.
        configurations: In the order they were first measured, failed ones left out.
    """

    query: str
    fingerprint: str
    slo: Slo
    configurations: tuple[ConfigurationRecord, ...]

    def __post_init__(self) -> None:
        checks.require(bool(self.query), "record.query", "must not be empty", self.query)
        rule = "must not be empty"
        checks.require(bool(self.fingerprint), "record.fingerprint", rule, self.fingerprint)


class HistoryStore(Protocol):
    """Keeps records of earlier queries. Safe to call from any thread."""

    def record(self, query: QueryRecord) -> None:
        """Keep a record; of one query the newest counts. Old ones may be dropped for room."""

    def earlier(self, fingerprint: str, most: int) -> Sequence[QueryRecord]:
        """Give at most `most` records of that fingerprint, the newest first."""


class InMemoryHistory:
    """A `HistoryStore` that lives as long as the process.

    Args:
        most: Records kept, of all fingerprints together; the oldest go first, `>= 1`.
    """

    def __init__(self, most: int = 1_000) -> None:
        checks.require(most >= 1, "history.most", "must be >= 1", most)
        self._most = most
        self._records: OrderedDict[str, QueryRecord] = OrderedDict()
        self._lock = Lock()

    def record(self, query: QueryRecord) -> None:
        """Keep a record as the newest."""
        with self._lock:
            self._records.pop(query.query, None)
            self._records[query.query] = query
            while len(self._records) > self._most:
                self._records.popitem(last=False)

    def earlier(self, fingerprint: str, most: int) -> Sequence[QueryRecord]:
        """Give at most `most` records of that fingerprint, the newest first."""
        with self._lock:
            mine = [r for r in self._records.values() if r.fingerprint == fingerprint]
        return tuple(mine[::-1][: max(most, 0)])


def within(history: Sequence[QueryRecord], space: ConfigurationSpace) -> tuple[QueryRecord, ...]:
    """Give the records without configurations that a space lacks: a query may rule values out."""
    return tuple(
        replace(
            record,
            configurations=tuple(
                one for one in record.configurations if holds(space, one.configuration)
            ),
        )
        for record in history
    )


def holds(space: ConfigurationSpace, configuration: Configuration) -> bool:
    """Give whether a space has a configuration."""
    try:
        space.number(configuration)
    except ValueError:  # unlike knobs, or InvalidInput for an unknown value
        return False
    return True


def _floats(values: FloatArray) -> tuple[float, ...]:
    return tuple(float(value) for value in values)


def _deviations(values: FloatArray) -> tuple[float, ...]:  # (k, n)
    """Give the deviation of each row; 0 for a single column."""
    if values.shape[1] < 2:
        return (0.0,) * len(values)
    return _floats(values.std(axis=1, ddof=1))
