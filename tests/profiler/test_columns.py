from __future__ import annotations

from math import nan

import numpy as np
import pytest

from pipelines.configuration import Configuration
from pipelines.profile import Failure
from profiler.columns import Columns
from profiler.journal import MeasuredInput


def measured(position: int) -> MeasuredInput:
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
    grown = Columns(Configuration(()), np.arange(199, -1, -1), operators=2)
    for position in range(rows):
        grown.append(measured(position))
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
        grown.append(measured(position))
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
