"""What earlier queries on the same pipeline measured, and what a later one takes from it.

A record holds figures, never inputs or scores of single inputs: means with counts and
spreads, so that a later query can weigh them by how well they are known. Other inputs may
be easier or harder: their means lie about those of this query, not on them. How far is learnt by
the models, see `planner.models.knob_process`. How well the mean over queries is known: its
variance is v / n + w for n inputs, v that of single inputs and w that between queries, undivided,
because ten queries may all have met the same inputs.

The one rule: records of different fingerprints are never mixed. A fingerprint changes
whenever measuring the pipeline could give something else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import inf

import numpy as np

from circinus.pipelines import checks
from circinus.pipelines.model.configuration import Configuration, ConfigurationSpace
from circinus.pipelines.model.latency import Work
from circinus.pipelines.model.profile import FloatArray
from circinus.pipelines.model.slo import Slo

MOST_RECALLED = 400
"""Configurations: about what ten queries leave. With more, a proposal takes too long."""

FEWEST_INPUTS = 2  # of all queries together; one input of one query shows next to nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigurationRecord:
    """What one query measured of one configuration."""

    configuration: Configuration  # what was measured
    inputs: int  # on how many inputs, `>= 1`
    accuracy: float  # mean score, in [0, 1]
    deviation: float  # of single scores from it, `>= 0`; 0 when there is one
    # Mean seconds of each operator on the reference machine, topological order.
    operator_s: tuple[float, ...]
    operator_deviation_s: tuple[float, ...]  # of single inputs from them, `>= 0`
    output_bytes: tuple[float, ...]  # mean bytes that each operator hands on
    input_bytes: float  # mean bytes of the inputs
    # Mean seconds of `operator_s` in which it waits; empty: not known, all counts as computing.
    waited_s: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        checks.at_least("record.inputs", self.inputs, 1)
        checks.probability("record.accuracy", self.accuracy)
        checks.non_negative("record.deviation", self.deviation)
        checks.non_negative("record.input_bytes", self.input_bytes)
        operators = len(self.operator_s)
        for name in ("operator_s", "operator_deviation_s", "output_bytes"):
            values = getattr(self, name)
            rule = f"must have {operators} figures, one per operator"
            checks.require(len(values) == operators >= 1, f"record.{name}", rule, len(values))
            if not all(0 <= value < inf for value in values):
                for value in values:
                    checks.non_negative(f"record.{name}", value)
        alike = len(self.waited_s) in (0, operators)
        rule = f"must have {operators} figures, one per operator, or none"
        checks.require(alike, "record.waited_s", rule, len(self.waited_s))

    @classmethod
    def of(
        cls, configuration: Configuration, scores: FloatArray, work: Work
    ) -> ConfigurationRecord:
        """Return the record of scores and work on the same n >= 1 inputs, all finite."""
        return cls(
            configuration=configuration,
            inputs=len(scores),
            accuracy=float(np.clip(scores.mean(), 0.0, 1.0)),
            deviation=_deviations(scores[None, :])[0],
            operator_s=tuple(work.operator_s.mean(axis=1).tolist()),
            operator_deviation_s=_deviations(work.operator_s),
            output_bytes=tuple(work.output_bytes.mean(axis=1).tolist()),
            input_bytes=float(work.input_bytes.mean()),
            waited_s=() if work.waited_s is None else tuple(work.waited_s.mean(axis=1).tolist()),
        )

    @property
    def mean_work(self) -> Work:
        """The average input's work, n = 1."""
        return Work(
            operator_s=np.array(self.operator_s)[:, None],
            output_bytes=np.array(self.output_bytes)[:, None],
            input_bytes=np.array([self.input_bytes]),
            waited_s=np.array(self.waited_s)[:, None] if self.waited_s else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryRecord:
    """What one query measured."""

    query: str  # its id; a record replaces an older one of the same id
    fingerprint: str  # of the pipeline, not empty
    slo: Slo  # what it asked for
    # In the order they were first measured, failed ones left out.
    configurations: tuple[ConfigurationRecord, ...]

    def __post_init__(self) -> None:
        checks.require(bool(self.query), "record.query", "must not be empty", self.query)
        rule = "must not be empty"
        checks.require(bool(self.fingerprint), "record.fingerprint", rule, self.fingerprint)


def within(history: Sequence[QueryRecord], space: ConfigurationSpace) -> tuple[QueryRecord, ...]:
    """Return the records without configurations outside a space: queries rule values out."""
    is_held = cache(lambda configuration: holds(space, configuration))  # records share most
    return tuple(
        replace(
            record,
            configurations=tuple(
                one for one in record.configurations if is_held(one.configuration)
            ),
        )
        for record in history
    )


def holds(space: ConfigurationSpace, configuration: Configuration) -> bool:
    """Return whether a space has a configuration."""
    try:
        space.number(configuration)
    except ValueError:  # unlike knobs, or InvalidInput for an unknown value
        return False
    return True


def recalled(
    history: Sequence[QueryRecord], space: ConfigurationSpace, most: int = MOST_RECALLED
) -> tuple[ConfigurationRecord, ...]:
    """Return what all queries know of at most `most` configurations, those on most inputs first.

    Deviations are one query's. The history has to be `within` the space.
    """
    by_number: dict[int, list[ConfigurationRecord]] = {}
    for query in history:
        for one in query.configurations:
            by_number.setdefault(space.number(one.configuration), []).append(one)
    gathered = [(number, _gathered(records)) for number, records in by_number.items()]
    known = [(n, one) for n, one in gathered if one.inputs >= FEWEST_INPUTS]
    known.sort(key=lambda pair: (-pair[1].inputs, pair[0]))
    return tuple(one for _, one in known[:most])


def _gathered(records: Sequence[ConfigurationRecord]) -> ConfigurationRecord:
    """Return what several queries saw of a configuration, means weighted by inputs."""
    inputs = np.array([one.inputs for one in records], dtype=float)
    part = inputs / inputs.sum()
    return replace(
        records[0],
        inputs=int(inputs.sum()),
        accuracy=min(float(part @ np.array([one.accuracy for one in records])), 1.0),
        operator_s=tuple((part @ np.array([one.operator_s for one in records])).tolist()),
        output_bytes=tuple((part @ np.array([one.output_bytes for one in records])).tolist()),
        input_bytes=float(part @ np.array([one.input_bytes for one in records])),
        waited_s=_waits_gathered(records, part),
    )


def _waits_gathered(records: Sequence[ConfigurationRecord], part: FloatArray) -> tuple[float, ...]:
    if not any(one.waited_s for one in records):
        return ()
    each = [one.waited_s or (0.0,) * len(one.operator_s) for one in records]
    return tuple((part @ np.array(each)).tolist())


def _deviations(values: FloatArray) -> tuple[float, ...]:  # (k, n)
    """Return the deviation of each row; 0 for a single column."""
    if values.shape[1] < 2:
        return (0.0,) * len(values)
    return tuple(values.std(axis=1, ddof=1).tolist())
