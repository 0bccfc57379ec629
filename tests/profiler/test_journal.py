from __future__ import annotations

import re
from math import nan

import numpy as np
import pytest

from pipelines.configuration import Configuration
from pipelines.errors import InvalidInput
from pipelines.profile import Failure, FloatArray
from profiler.journal import Journal, MeasuredInput, MemoryJournal

FAILURE = Failure(input=0, operator="op", cause="broke")
ONE = Configuration((("op", "knob", 1),))
TWO = Configuration((("op", "knob", 2),))


def measured(
    *,
    input: int = 0,
    score: float = 0.5,
    failure: Failure | None = None,
    operator_s: FloatArray | None = None,
    spent_s: float = 1.0,
    saved_s: float = 0.0,
) -> MeasuredInput:
    return MeasuredInput(
        input=input,
        score=score,
        operator_s=np.ones(2) if operator_s is None else operator_s,
        output_bytes=np.ones(2),
        input_bytes=1.0,
        failure=failure,
        spent_s=spent_s,
        saved_s=saved_s,
    )


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"input": -1}, "measured input -1 must have an index >= 0, got -1."),
        ({"operator_s": np.ones(3)}, "must have seconds and bytes of the same operators"),
        ({"operator_s": np.ones((2, 1))}, "must have seconds and bytes of the same operators"),
        ({"score": nan}, "must have either a score in [0, 1] or a failure and NaN"),
        ({"score": 1.1}, "must have either a score in [0, 1] or a failure and NaN"),
        ({"failure": FAILURE}, "must have either a score in [0, 1] or a failure and NaN"),
        ({"spent_s": -1.0}, "measured input 0, spent_s must be finite and >= 0, got -1.0."),
        ({"spent_s": nan}, "measured input 0, spent_s must be finite and >= 0, got nan."),
        ({"saved_s": -1.0}, "measured input 0, saved_s must be finite and >= 0, got -1.0."),
    ],
)
def test_a_measurement_that_makes_no_sense_is_refused(
    changed: dict[str, object], message: str
) -> None:
    with pytest.raises(InvalidInput, match=re.escape(message)):
        measured(**changed)  # type: ignore[arg-type]  # wrong on purpose


def test_a_failure_has_no_score() -> None:
    assert measured(score=nan, failure=FAILURE).failure is FAILURE


def test_an_unknown_configuration_has_no_measurements() -> None:
    assert not MemoryJournal().recall(ONE)


def test_what_was_recorded_is_recalled_for_its_configuration_only() -> None:
    journal: Journal = MemoryJournal()
    kept = [measured(input=3), measured(input=1)]
    for one in kept:
        journal.record(ONE, one)
    journal.record(TWO, measured(input=2))
    assert list(journal.recall(ONE)) == kept


def test_a_second_record_replaces_the_first() -> None:
    journal = MemoryJournal()
    journal.record(ONE, measured(score=0.1))
    journal.record(ONE, measured(score=0.2))
    assert [one.score for one in journal.recall(ONE)] == [0.2]
