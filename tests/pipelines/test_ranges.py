from __future__ import annotations

from math import inf, nan, nextafter

import pytest

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.ranges import MACHINES, WEIGHT


@pytest.mark.parametrize("value", [0.0, nextafter(0.001, 0), nextafter(1000, inf), inf, -inf, nan])
def test_a_value_outside_is_refused_by_name_rule_and_value(value: float) -> None:
    with pytest.raises(InvalidInput, match=r"weight must be from 0\.001 to 1000, got"):
        WEIGHT.check("weight", value)


@pytest.mark.parametrize("value", [0.001, 1.0, 1000, None])
def test_both_ends_are_within_and_so_is_what_is_left_out(value: float | None) -> None:
    WEIGHT.check("weight", value)


def test_large_whole_numbers_are_told_digit_by_digit() -> None:
    assert MACHINES.rule == "must be from 0 to 100000"
