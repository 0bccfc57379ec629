"""What a status says of requests, written only when it says something else."""

from __future__ import annotations

from typing import Any

import pytest

from circinus.api.operator.observed import objectives_condition, observed_facts, observed_schema
from circinus.api.schemas.deployments import ObjectivesView, ObjectiveView


def view(
    value: float | None = 2.9,
    *,
    state: str = "missed",
    overload: str | None = None,
    turned_away: int = 0,
    requests: int = 100,
    accuracy: str = "unsure",
) -> ObjectivesView:
    latency = ObjectiveView(
        name="latency", bound=0.15, state=state, value=value, low=value, high=value, requests=80
    )
    others = [ObjectiveView(name="accuracy", bound=0.8, state=accuracy)]
    return ObjectivesView(
        query_id="q-1",
        plan_id="p-1",
        state="missed" if accuracy == "missed" else state,
        sentence="so it is",
        objectives=[*others, latency],
        overload=overload,
        rate_per_s=4.00001,
        requests=requests,
        turned_away=turned_away,
        failed=0,
        waiting=0,
    )


def facts(before: Any = None, **given: Any) -> Any:  # noqa: ANN401 - a JSON tree
    return observed_facts(before, view(**given))


def test_of_a_query_that_nobody_looked_at_nothing_is_said() -> None:
    assert observed_facts(facts(), None) is None
    assert objectives_condition(None)[:2] == ("Unknown", "NotObserved")


def test_figures_are_told_with_three_digits_and_left_out_where_there_are_none() -> None:
    told = facts(value=2.9123)
    assert told["ratePerS"] == 4.0
    assert told["objectives"] == [
        {"name": "accuracy", "state": "unsure", "bound": 0.8, "requests": 0},
        {
            "name": "latency",
            "state": "missed",
            "value": 2.91,
            "low": 2.91,
            "high": 2.91,
            "bound": 0.15,
            "requests": 80,
        },
    ]


@pytest.mark.parametrize(
    ("change", "written"),
    [
        ({}, False),
        ({"value": 2.9 * 1.2}, False),
        ({"requests": 120}, False),
        ({"value": 2.9 * 1.3}, True),
        ({"requests": 130}, True),
        ({"value": None}, True),
        ({"state": "unsure"}, True),
        ({"overload": "much"}, True),
        ({"turned_away": 1}, True),
    ],
)
def test_a_status_is_written_anew_when_it_says_something_else(
    change: dict[str, Any], written: bool
) -> None:
    before = facts()
    assert (facts(before, **change) is not before) is written


def test_other_words_of_an_overload_are_no_news() -> None:
    before = facts(overload="14 wait")
    assert facts(before, overload="15 wait") is before


@pytest.mark.parametrize(
    ("given", "status", "reason"),
    [
        ({"state": "met"}, "True", "AllMet"),
        ({"state": "met", "overload": "much"}, "True", "Overloaded"),
        ({"state": "met", "overload": "much", "turned_away": 3}, "False", "Overloaded"),
        ({"state": "missed", "overload": "much", "turned_away": 3}, "False", "LatencyMissed"),
        ({"state": "met", "accuracy": "missed"}, "False", "AccuracyMissed"),
        ({"state": "unsure"}, "Unknown", "TooFewRequests"),
    ],
)
def test_the_condition_says_whether_requests_get_what_is_asked_for(
    given: dict[str, Any], status: str, reason: str
) -> None:
    assert objectives_condition(facts(**given))[:2] == (status, reason)


def test_the_schema_knows_every_field() -> None:
    properties = observed_schema()["properties"]
    told = facts(overload="much")
    assert told.keys() == properties.keys()
    known = properties["objectives"]["items"]["properties"]
    assert {name for each in told["objectives"] for name in each} == known.keys()
