from __future__ import annotations

import re
from math import nan

import numpy as np
import pytest

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.configuration import Configuration
from circinus.pipelines.model.profile import Failure, FloatArray
from circinus.profiler.journal import Columns, Journal, MeasuredInput, MemoryJournal

FAILURE = Failure(input=0, operator="op", cause="broke")
ONE = Configuration((("op", "knob", 1),))
TWO = Configuration((("op", "knob", 2),))


def measured(
    *,
    input: int = 0,
    score: float = 0.5,
    failure: Failure | None = None,
    operator_s: FloatArray | None = None,
    waited_s: FloatArray | None = None,
    spent_s: float = 1.0,
    saved_s: float = 0.0,
) -> MeasuredInput:
    return MeasuredInput(
        input=input,
        score=score,
        operator_s=np.ones(2) if operator_s is None else operator_s,
        output_bytes=np.ones(2),
        waited_s=waited_s,
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
        ({"waited_s": np.ones(3)}, "measured input 0, waited_s must have shape (2,), got (3,)."),
        ({"operator_s": np.ones((2, 1))}, "must have seconds and bytes of the same operators"),
        ({"score": nan}, "must have either a score in [0, 1] or a failure and NaN"),
        ({"score": float("inf")}, "must have either a score in [0, 1] or a failure and NaN"),
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


def in_order(position: int) -> MeasuredInput:
    return MeasuredInput(
        input=199 - position,
        score=position / 200,
        operator_s=np.array([position, position + 0.5]),
        output_bytes=np.array([10.0, position]),
        input_bytes=float(position),
        spent_s=1.0,
        saved_s=0.5,
    )


def columns(rows: int) -> Columns:
    grown = Columns(Configuration(()), operators=2)
    for position in range(rows):
        grown.append(in_order(position))
    return grown


def test_a_profile_cannot_be_written_to() -> None:
    profile = columns(3).profile()
    for array in (
        profile.score,
        profile.operator_s,
        profile.output_bytes,
        profile.input_bytes,
    ):
        with pytest.raises(ValueError, match="read-only"):
            array[..., 0] = 0


def test_nothing_measured_is_an_empty_profile() -> None:
    profile = columns(0).profile()
    assert profile.score.shape == (0,)
    assert profile.operator_s.shape == (2, 0)


def test_a_profile_stays_as_it_was_while_more_is_measured() -> None:
    grown = columns(60)
    early = grown.profile()
    for position in range(60, 200):
        grown.append(in_order(position))
    late = grown.profile()
    assert early.score.shape == (60,)
    assert late.score.tolist() == [position / 200 for position in range(200)]
    assert np.array_equal(early.operator_s, late.operator_s[:, :60])
    assert late.operator_s[:, 7].tolist() == [7, 7.5]
    assert late.output_bytes[:, 7].tolist() == [10, 7]
    assert late.input_bytes[7] == 7
    assert late.inputs[:3].tolist() == [199, 198, 197]
    assert (early.spent_s, late.spent_s, late.saved_s) == (60, 200, 100)


def test_failures_are_kept_in_order() -> None:
    grown = columns(1)
    failure = Failure(input=198, operator="op", cause="broke")
    grown.append(
        MeasuredInput(
            input=198,
            score=nan,
            operator_s=np.full(2, nan),
            output_bytes=np.full(2, nan),
            input_bytes=nan,
            failure=failure,
            spent_s=2.0,
        )
    )
    profile = grown.profile()
    assert profile.failures == (failure,)
    assert profile.succeeded.tolist() == [True, False]
    assert profile.spent_s == 3.0


def test_a_profile_tells_what_operators_waited() -> None:
    each = Columns(ONE, 2)
    each.append(measured(waited_s=np.array([0.25, 0.5])))
    each.append(measured(input=1))
    waited_s = each.profile().waited_s
    assert waited_s is not None
    assert waited_s.tolist() == [[0.25, 0.0], [0.5, 0.0]]
