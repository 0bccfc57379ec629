"""Axes of the service's own drawings."""

from __future__ import annotations

from math import inf, nan

import pytest

from circinus.api.drawing.plot import linear


@pytest.mark.parametrize(
    ("values", "ticks"),
    [
        ([], ["0", "0.2"]),
        ([0.0], ["0", "0.2"]),
        ([3.0, nan, inf], ["0", "1", "2", "3"]),
        ([0.003], ["0", "0.001", "0.002", "0.003"]),
        ([42.0], ["0", "10", "20", "30", "40", "50"]),
        ([-1.0, 1.0], ["-1", "-0.5", "0", "0.5", "1"]),
    ],
)
def test_linear_ticks_are_round_and_hold_all_values_and_nought(
    values: list[float], ticks: list[str]
) -> None:
    axis = linear(values, "seconds")
    assert [label for _, label in axis.ticks] == ticks
    assert (axis.low, axis.high) == (axis.ticks[0][0], axis.ticks[-1][0])
