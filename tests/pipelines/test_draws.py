from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.draws import (
    MOST_DRAWS,
    DrawOrder,
    draws_of,
    draws_worth,
    means_of_inputs,
    units_of,
)

ORDER = np.array([3, 0, 2])
INPUTS = st.lists(st.integers(0, 4), max_size=20)


def test_pairs_that_it_has_not_grown_to_are_refused() -> None:
    order = DrawOrder(ORDER, draws=True)
    order.grow(2, 1)
    with pytest.raises(InvalidInput, match=re.escape("pairs must be in [0, 2], got (0, 3).")):
        order.pairs(0, 3)


def test_without_draws_it_is_the_order_of_inputs() -> None:
    order = DrawOrder(ORDER, draws=False)
    order.grow(100, 5)
    assert order.size == 3
    assert order.pairs(0, 3) == [(3, 0), (0, 0), (2, 0)]


def test_inputs_are_drawn_again_when_all_are_used_up() -> None:
    order = DrawOrder(ORDER, draws=True)
    order.grow(5, 1)
    assert order.pairs(1, 5) == [(0, 0), (2, 0), (3, 1), (0, 1)]


def test_those_that_were_drawn_less_often_come_first() -> None:
    order = DrawOrder(ORDER, draws=True)
    order.grow(1, 1)
    order.grow(2, 2)  # two draws of 0
    order.grow(6, 1)  # 2, and then what has one draw: 3 and 2
    assert order.pairs(0, 6) == [(3, 0), (0, 0), (0, 1), (2, 0), (3, 1), (2, 1)]


@given(st.lists(st.tuples(st.integers(1, 30), st.integers(1, 12)), max_size=8))
def test_it_ends_with_every_draw_of_every_input_and_never_changes_what_it_gave(
    asked: list[tuple[int, int]],
) -> None:
    order = DrawOrder(ORDER, draws=True)
    given_out: list[tuple[int, int]] = []
    for n, draws in asked:
        order.grow(n, draws)
        pairs = order.pairs(0, min(n, order.size))
        assert pairs[: len(given_out)] == given_out[: len(pairs)]
        given_out = max(given_out, pairs, key=len)
    order.grow(10_000, 1)
    every = order.pairs(0, order.size)
    assert sorted(every) == sorted((i, d) for i in ORDER.tolist() for d in range(MOST_DRAWS))


def test_a_pipeline_that_is_found_to_draw_goes_on_from_where_it_is() -> None:
    found = DrawOrder(ORDER, draws=False).drawing(2)
    found.grow(4, 1)
    assert found.pairs(0, 4) == [(3, 0), (0, 0), (2, 0), (3, 1)]


@given(INPUTS)
def test_draws_are_counted_by_input(inputs: list[int]) -> None:
    by_hand = [inputs[:at].count(one) for at, one in enumerate(inputs)]
    assert draws_of(np.array(inputs, dtype=np.int64)).tolist() == by_hand


@given(INPUTS)
def test_means_are_of_the_draws_of_each_input_as_they_were_first_met(inputs: list[int]) -> None:
    scores = np.arange(len(inputs)) / 20
    by_hand = [
        np.mean([score for i, score in zip(inputs, scores, strict=True) if i == one])
        for one in dict.fromkeys(inputs)
    ]
    assert means_of_inputs(np.array(inputs, dtype=np.int64), scores) == pytest.approx(by_hand)


def test_units_are_draws_made_one_after_the_other() -> None:
    inputs, scores = np.array([3, 0, 0, 2, 3]), np.array([1.0, 0.0, 0.5, 1.0, 0.0])
    assert units_of(inputs, scores).tolist() == [1.0, 0.25, 1.0, 0.0]
    assert units_of(np.zeros(0, dtype=np.int64), np.zeros(0)).tolist() == []


@pytest.mark.parametrize("ratio", [0.1, 1.0, 3.0, 20.0])
@pytest.mark.parametrize("part", [0.02, 0.2, 0.8])
def test_as_many_draws_are_worth_it_as_give_the_least_variance_for_the_cost(
    ratio: float, part: float
) -> None:
    worth = draws_worth(ratio, 1.0, part, 1 - part)
    exact = np.sqrt(ratio * part / (1 - part))
    assert abs(worth - min(max(exact, 1), MOST_DRAWS)) <= 0.5
    loss = {d: (1 - part + part / d) * (ratio + d) for d in range(1, MOST_DRAWS + 1)}
    assert loss[worth] <= 1.05 * min(loss.values())


def test_one_draw_is_enough_where_nothing_is_shared_or_nothing_is_known() -> None:
    assert draws_worth(0.0, 1.0, 0.5, 0.5) == 1
    assert draws_worth(1.0, 0.0, 0.5, 0.5) == 1
    assert draws_worth(1.0, 1.0, 0.5, 0.0) == 1
