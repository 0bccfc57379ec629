from __future__ import annotations

from math import inf, nan
from typing import Any

import pytest

from circinus.pipelines.errors import InvalidInput
from tests.scheduler.states import state


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"waited": -1.0}, "waited_s must be >= 0"),
        ({"waited": nan}, "waited_s must be >= 0"),
        ({"qos": 0.0}, "qos_s must be > 0"),
        ({"qos": nan}, "qos_s must be > 0"),
        ({"busy": -1e-9}, "busy_s must be >= 0"),
        ({"busy": nan}, "busy_s must be >= 0"),
        ({"coefficient": 0.0}, r"coefficient must be in \(0, 1\]"),
        ({"coefficient": 1.01}, r"coefficient must be in \(0, 1\]"),
        ({"price": -0.1}, "price must be >= 0"),
        ({"kind": -1}, "kind must be >= 0"),
    ],
)
def test_a_state_that_makes_no_sense_is_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        state([[1.0]], **changed)


@pytest.mark.parametrize("predicted", [nan, -1e-9])
def test_predictions_are_seconds(predicted: float) -> None:
    with pytest.raises(InvalidInput, match="predicted_s must be >= 0 everywhere"):
        state([[predicted]])


def test_the_bounds_themselves_are_fine() -> None:
    bounds = state([[inf]], waited=0.0, qos=1e-300, busy=0.0, coefficient=1.0, price=0.0)
    assert len(bounds.fleet) == 1
