"""Which types are of use, and how many of each."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from circinus.pipelines.errors import InvalidInput
from circinus.scheduler.pool.ribbon_space import MeasuredTypes, most_useful
from circinus.scheduler.pool.search import Pool

SHARE = np.array([0.5, 0.5])
# fast, cheap and a little late, cheaper and far too late, slow and dear
LATENCY = np.array([[0.010, 0.015, 0.020, 0.012], [0.020, 0.025, 0.040, 0.026]])
PRICES = np.array([1.0, 0.3, 0.1, 2.0])
TYPES = MeasuredTypes(share=SHARE, latency_s=LATENCY, prices=PRICES)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"share": SHARE[:1]}, r"latency_s must have shape \(1, 4\)"),
        ({"latency_s": 0 * LATENCY}, "latency_s must be > 0"),
        ({"prices": 0 * PRICES}, "prices must be > 0"),
    ],
)
def test_types_that_make_no_sense_are_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        replace(TYPES, **changed)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"qos_s": 0.0}, "qos_s must be finite and > 0"),
        ({"qos_s": 0.019}, "qos_s must be such that a type alone has 99% of the requests in time"),
        ({"relaxed": -0.1}, "relaxed must be finite and >= 0"),
    ],
)
def test_targets_that_make_no_sense_are_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        TYPES.useful(**({"qos_s": 0.02} | changed))


def test_a_dollar_serves_what_is_served_in_its_time() -> None:
    # 15 ms on average for 1 USD/h: 3600 / 0.015
    assert TYPES.requests_per_usd[0] == pytest.approx(240_000.0)


def test_a_type_is_of_use_that_meets_the_relaxed_target_and_serves_more_for_a_dollar() -> None:
    assert TYPES.useful(0.020) == [0, 1]
    assert TYPES.useful(0.020, relaxed=0.24) == [0]
    # the cheapest type serves the most for a dollar: 3600 / 0.03 / 0.1
    assert TYPES.useful(0.020, relaxed=1.0) == [0, 2, 1]


def test_the_base_serves_the_most_for_a_dollar_of_those_in_time() -> None:
    # 3600 / 0.02 / 0.3 is more than 240,000; the cheapest is late by the relaxed target, too
    assert TYPES.useful(0.026) == [1]
    assert TYPES.useful(0.040) == [2]


def test_the_few_that_may_be_late_do_not_matter() -> None:
    types = MeasuredTypes(
        share=np.array([0.99, 0.01]),
        latency_s=np.array([[0.01, 0.02], [0.02, 9.0]]),
        prices=np.array([9.0, 0.1]),
    )
    assert types.useful(0.02) == [1]
    assert types.useful(0.02, in_time=0.995) == [0]


def test_the_most_of_a_type_is_where_more_do_not_improve() -> None:
    def in_time(pool: Pool) -> float:
        """Of the first, 3 serve all; of the second, one does nothing and 4 get to 0.9."""
        return min(pool[0] / 3, 1.0) + (0.3 * min(pool[1] - 1, 3) if pool[1] else 0.0)

    assert most_useful(in_time, kinds=2, limit=9) == (3, 4)
    assert most_useful(in_time, kinds=2, limit=2) == (2, 2)
    assert most_useful(lambda pool: 0.0, kinds=2, limit=9) == (1, 1)


def test_differences_within_the_tolerance_are_none() -> None:
    shares = [0.0, 0.5, 0.95, 0.953, 0.951]
    told: dict[Pool, float] = {(count,): share for count, share in enumerate(shares)}
    assert most_useful(told.__getitem__, kinds=1, limit=4) == (2,)
    assert most_useful(told.__getitem__, kinds=1, limit=4, tolerance=0.0) == (3,)


@pytest.mark.parametrize("wrong", [{"kinds": 0}, {"limit": 0}, {"tolerance": -1.0}])
def test_no_types_or_counts_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=next(iter(wrong))):
        most_useful(lambda pool: 1.0, **({"kinds": 1, "limit": 1} | wrong))
