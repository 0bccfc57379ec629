"""When a trial need not go on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from circinus.pipelines.errors import InvalidInput
from circinus.scheduler.pool.pools import PoolSpace, PoolTrial
from circinus.scheduler.pool.ribbon_trial import EarlyEnd
from circinus.scheduler.pool.search import CheapestInTime

RULE = EarlyEnd(longest_queue=5, requests=200)  # 2 may be late


def trial(waiting: list[int], late: set[int], rule: EarlyEnd = RULE) -> PoolTrial | None:
    in_time = np.array([i not in late for i in range(len(waiting))])
    return rule.trial((1,), np.array(waiting), in_time)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"longest_queue": -1}, "longest_queue must be >= 0"),
        ({"requests": 0}, "requests must be >= 1"),
        ({"in_time": 0.0}, r"in_time must be in \(0, 1\]"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        EarlyEnd(**({"longest_queue": 5, "requests": 9} | changed))


def test_no_requests_too_many_and_other_shapes_are_refused() -> None:
    for count in (0, 201):
        with pytest.raises(InvalidInput, match=f"waiting must be 1 to 200, got {count}"):
            trial([0] * count, set())
    with pytest.raises(InvalidInput, match=r"in_time must have shape \(2,\)"):
        RULE.trial((1,), np.zeros(2, dtype=np.int64), np.ones(3, dtype=np.bool_))


def test_a_trial_goes_on_while_it_may_turn_out_well() -> None:
    assert trial([5] * 199, {0, 1}) is None
    assert trial([5] * 200, {0, 1}) == PoolTrial((1,), 0.99)


def test_it_ends_with_the_first_late_one_too_many() -> None:
    assert trial([0] * 10, {0, 1, 4}) == PoolTrial((1,), 2 / 5, ended_early=True)


def test_it_ends_when_the_queue_is_too_long_unless_any_length_is_good() -> None:
    assert trial([0, 5, 6, 0], set()) == PoolTrial((1,), 1.0, ended_early=True)
    anything = EarlyEnd(longest_queue=None, requests=200)
    assert trial([0, 5, 6, 0], set(), anything) is None


def test_a_queue_that_is_too_long_with_the_last_request_violates_as_well() -> None:
    ended = trial([0] * 199 + [6], set())
    assert ended == PoolTrial((1,), 1.0, ended_early=True)
    goal = CheapestInTime(space=PoolSpace(types=("a",), prices=(1.0,), most=(3,)))
    assert not goal.feasible(ended)
    assert goal.worth(ended) == 0.5  # no more than what violates may be worth


@given(st.lists(st.booleans(), min_size=100, max_size=100), st.sampled_from([0.5, 0.9, 0.99, 1.0]))
def test_without_a_longest_queue_it_says_what_the_whole_trial_would(
    in_time: list[bool], target: float
) -> None:
    rule = EarlyEnd(longest_queue=None, requests=100, in_time=target)
    done = rule.trial((1,), np.zeros(100, dtype=np.int64), np.array(in_time))
    goal = CheapestInTime(space=PoolSpace(types=("a",), prices=(1.0,), most=(3,)), in_time=target)
    assert done is not None
    assert goal.feasible(done) == goal.feasible(PoolTrial((1,), sum(in_time) / 100))
