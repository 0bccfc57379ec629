"""What earlier queries measured, gathered by configuration, the best known first.

Queries of the same pipeline have other inputs: their means lie about those of this query,
not on them. How far is learnt by the models, see `planner.knob_process`. How well the mean over
queries is known: its variance is v / n + w for n inputs, v that of single inputs and w that
between queries, undivided, because ten queries may all have met the same inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pipelines.configuration import ConfigurationSpace
from pipelines.latency import Work
from pipelines.profile import FloatArray
from planner.history import ConfigurationRecord, QueryRecord

MOST_RECALLED = 400
"""Configurations: about what ten queries leave. With more, a proposal takes too long."""

FEWEST_INPUTS = 2
"""Of all queries together; one input of one query says next to nothing."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Recalled:
    """A configuration as earlier queries saw it, means weighted by inputs.

    Attributes:
        number: Of the configuration.
        inputs: Of all queries together.
        accuracy: Mean score.
        operator_s: Mean seconds, shape (O,).
        variation: Variance of seconds over inputs in units of their squared mean, shape (O,).
        output_bytes: Shape (O,).
        input_bytes: Mean.
    """

    number: int
    inputs: int
    accuracy: float
    operator_s: FloatArray
    variation: FloatArray
    output_bytes: FloatArray
    input_bytes: float

    @property
    def mean_work(self) -> Work:
        """The average input's work, n = 1."""
        return Work(
            operator_s=self.operator_s[:, None],
            output_bytes=self.output_bytes[:, None],
            input_bytes=np.array([self.input_bytes]),
        )


def recalled(
    history: Sequence[QueryRecord], space: ConfigurationSpace, most: int = MOST_RECALLED
) -> tuple[Recalled, ...]:
    """Give what is known of at most `most` configurations, those on most inputs first.

    Args:
        history: Within the space, see `planner.history.within`.
        space: Numbers the configurations.
        most: `>= 0`.
    """
    seen: dict[int, list[ConfigurationRecord]] = {}
    for query in history:
        for one in query.configurations:
            seen.setdefault(space.number(one.configuration), []).append(one)
    gathered = [_gathered(number, records) for number, records in seen.items()]
    known = [one for one in gathered if one.inputs >= FEWEST_INPUTS]
    return tuple(sorted(known, key=lambda one: (-one.inputs, one.number))[:most])


def _gathered(number: int, records: Sequence[ConfigurationRecord]) -> Recalled:
    inputs = np.array([one.inputs for one in records], dtype=float)
    part = inputs / inputs.sum()
    seconds = part @ np.array([one.operator_s for one in records])
    squares = part @ np.square([one.operator_deviation_s for one in records])
    return Recalled(
        number=number,
        inputs=int(inputs.sum()),
        accuracy=float(part @ np.array([one.accuracy for one in records])),
        operator_s=seconds,
        variation=squares / np.square(np.maximum(seconds, np.finfo(float).tiny)),
        output_bytes=part @ np.array([one.output_bytes for one in records]),
        input_bytes=float(part @ np.array([one.input_bytes for one in records])),
    )
