import pytest

from circinus.pipelines.units import dollars_per_hour, figures, seconds


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (0.0, "0.00 ms"),
        (1e-9, "1e-06 ms"),
        (0.00000999, "0.00999 ms"),
        (0.00001, "0.01 ms"),
        (0.0123456, "12.3 ms"),
        (0.999, "999 ms"),
        (1.0, "1.00 s"),
        (86400.0, "86400 s"),
    ],
)
def test_seconds_have_three_figures_and_a_unit(value: float, told: str) -> None:
    assert seconds(value) == told


def test_dollars_and_figures() -> None:
    assert dollars_per_hour(0.18504) == "$0.1850/h"
    assert [figures(x) for x in (1.234, 12.34, 123.4)] == ["1.23", "12.3", "123"]
