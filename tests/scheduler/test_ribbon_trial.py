"""When a trial need not go on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from circinus.pipelines.errors import InvalidInput
from circinus.scheduler.pool.ribbon_space import EarlyEnd
from circinus.scheduler.pool.search import CheapestInTime, PoolSpace, PoolTrial

RULE = EarlyEnd(longest_queue=5)


def trial(
    waiting: list[int], late: set[int], rule: EarlyEnd = RULE, count: int = 200
) -> tuple[PoolTrial, int]:
    """Of 200 requests, 2 may be late."""
    in_time = np.array([i not in late for i in range(count)])
    return rule.trial((1,), np.array(waiting + [0] * (count - len(waiting))), in_time)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"longest_queue": -1}, "longest_queue must be >= 0"),
        ({"in_time": 0.0}, r"in_time must be in \(0, 1\]"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        EarlyEnd(**({"longest_queue": 5} | changed))


def test_no_requests_and_other_shapes_are_refused() -> None:
    for count in (0, 3):
        with pytest.raises(InvalidInput, match="waiting must have shape"):
            RULE.trial((1,), np.zeros(2, dtype=np.int64), np.ones(count, dtype=np.bool_))
    with pytest.raises(InvalidInput, match="waiting must have shape"):
        trial([], set(), count=0)


def test_a_trial_goes_on_while_it_may_turn_out_well() -> None:
    assert trial([5] * 200, {0, 1}) == (PoolTrial((1,), 0.99), 200)


def test_it_ends_with_the_first_late_one_too_many() -> None:
    assert trial([], {0, 1, 4}) == (PoolTrial((1,), 2 / 5, ended_early=True), 5)
    assert trial([], {0, 1, 199}) == (PoolTrial((1,), 0.985), 200)


def test_it_ends_when_the_queue_is_too_long_unless_any_length_is_good() -> None:
    assert trial([0, 5, 6, 0], set()) == (PoolTrial((1,), 1.0, ended_early=True), 3)
    anything = EarlyEnd(longest_queue=None)
    assert trial([0, 5, 6, 0], set(), anything) == (PoolTrial((1,), 1.0), 200)


def test_a_queue_that_is_too_long_with_the_last_request_violates_as_well() -> None:
    ended, count = trial([0] * 199 + [6], set())
    assert (ended, count) == (PoolTrial((1,), 1.0, ended_early=True), 200)
    goal = CheapestInTime(space=PoolSpace(types=("a",), prices=(1.0,), most=(3,)))
    assert not goal.feasible(ended)
    assert goal.worth(ended) == 0.5  # no more than what violates may be worth


@given(st.lists(st.booleans(), min_size=100, max_size=100), st.sampled_from([0.5, 0.9, 0.99, 1.0]))
def test_without_a_longest_queue_it_says_what_the_whole_trial_would(
    in_time: list[bool], target: float
) -> None:
    rule = EarlyEnd(longest_queue=None, in_time=target)
    done, _ = rule.trial((1,), np.zeros(100, dtype=np.int64), np.array(in_time))
    goal = CheapestInTime(space=PoolSpace(types=("a",), prices=(1.0,), most=(3,)), in_time=target)
    assert goal.feasible(done) == goal.feasible(PoolTrial((1,), sum(in_time) / 100))
