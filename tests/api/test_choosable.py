"""What a question for a pool must have, told before anything is simulated."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from circinus.api.schemas.pools import ChoosePoolBody
from circinus.api.use_cases.query_pools import require_choosable
from circinus.pipelines.errors import InvalidInput

ROW = {"type": "x", "batch": 2, "mean_ms": 5.0}
PRICE = {"name": "x", "price_usd_per_hour": 1.0, "date": "2026-01-31"}
GOOD: dict[str, Any] = {
    "latencies": [ROW, {**ROW, "batch": 4}],
    "qos_ms": 50.0,
    "budget_usd_per_hour": 2.0,
    "prices": [PRICE],
    "mix": [1, 4],
}


@pytest.mark.parametrize(
    ("changed", "rule"),
    [
        ({"budget_usd_per_hour": None}, "budget_usd_per_hour must be given, or rate_per_s"),
        ({"latencies": [ROW, ROW]}, "latencies must not repeat"),
        (
            {"latencies": [ROW, {**ROW, "type": "y", "batch": 4}]},
            "latencies must have every type at every batch",
        ),
        ({"types": ["y"]}, "types must be among x, got 'y'"),
        ({"types": ["x", "x"]}, "types must not repeat"),
        ({"prices": []}, "prices must have every type to choose among, got 'x'"),
        ({"most": {"y": 1}}, "most must be among x, got 'y'"),
        ({"mix": [5]}, r"batch must be in \[1, 4\], the sizes that were measured, got 5"),
        ({"arrivals": [0.0, 5e-324]}, "arrivals must have one of at least 1e-09 s"),
    ],
)
def test_what_nothing_can_be_chosen_from_is_refused(changed: dict[str, Any], rule: str) -> None:
    with pytest.raises(InvalidInput, match=rule):
        require_choosable(ChoosePoolBody.model_validate(GOOD | changed))


@pytest.mark.parametrize(
    "changed",
    [{"mix": []}, {"arrivals": []}, {"latencies": [{**ROW, "type": "no name"}]}],
)
def test_what_the_schema_states_is_refused_by_it(changed: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        ChoosePoolBody.model_validate(GOOD | changed)


@pytest.mark.parametrize(
    "changed", [{}, {"budget_usd_per_hour": None, "rate_per_s": 1.0}, {"arrivals": [0.0, 1e-9]}]
)
def test_what_can_be_chosen_from_passes(changed: dict[str, Any]) -> None:
    require_choosable(ChoosePoolBody.model_validate(GOOD | changed))
