from __future__ import annotations

from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from circinus.scheduler.pool.worthwhile import dearness, least_cost, worthwhile


def test_what_is_late_everywhere_has_no_cost() -> None:
    share, latency = np.array([0.9, 0.1]), np.array([[1.0], [9.0]])
    assert least_cost(share, latency, np.array([2.0]), 5.0, in_time=1.0) == inf
    # the others may be late: 0.9 requests of 1 s at 2 an hour
    assert least_cost(share, latency, np.array([2.0]), 5.0, in_time=0.9) == pytest.approx(1.8)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), in_time=st.sampled_from([1.0, 0.9]))
def test_the_least_cost_is_that_of_instances_in_parts(seed: int, in_time: float) -> None:
    rng = np.random.default_rng(seed)
    share, prices = rng.dirichlet(np.ones(4)), rng.uniform(0, 2, 3)
    latency = rng.uniform(0.1, 1.5, (4, 3))
    latency[:, 0] = np.minimum(latency[:, 0], 1.0)
    cost = np.where(latency <= 1.0, latency * prices, 1e6).ravel()
    each = np.kron(np.eye(4), np.ones(3))  # a size is served as often as it comes, at most
    left, right = np.vstack([each, -np.ones(12)]), np.append(share, -in_time)
    solved = linprog(cost, A_ub=left, b_ub=right, method="highs")
    found = least_cost(share, latency, prices, 1.0, in_time=in_time)
    assert found == pytest.approx(solved.fun, rel=1e-6, abs=1e-9)


def test_a_type_is_as_dear_as_for_the_size_that_suits_it_best() -> None:
    # costs 1, 2, 4 and 3, 3, late: the second is as cheap for the large size, the third never
    latency = np.array([[1.0, 2.0, 4.0], [3.0, 3.0, 9.0]])
    dear = dearness(np.array([0.5, 0.5]), latency, np.ones(3), 5.0)
    assert dear.tolist() == [1.0, 1.0, 4.0]


def test_sizes_that_do_not_occur_and_types_in_time_with_none_do_not_count() -> None:
    latency = np.array([[1.0, 9.0], [3.0, 0.1]])
    assert dearness(np.array([1.0, 0.0]), latency, np.ones(2), 5.0).tolist() == [1.0, inf]


def test_beside_a_free_type_the_others_are_not_worth_it() -> None:
    dear = dearness(np.array([1.0]), np.array([[1.0, 2.0]]), np.array([1.0, 0.0]), 5.0)
    assert dear.tolist() == [inf, 1.0]


@pytest.mark.parametrize(
    ("dear", "choices", "keep", "places"),
    [
        ([1.0, 2.0, 1.5], [10, 10, 10], None, [0, 2]),  # 1000 would be more than 100
        ([1.0, 2.0, 1.5], [10, 10, 10], 1, [0, 1]),
        ([1.0, inf, 1.5], [2, 2, 2], None, [0, 2]),
        ([1.0, 1.0, 1.5], [2, 1, 2], None, [0, 2]),  # one cannot be paid
        ([inf, inf], [2, 2], None, [0]),
        ([1.0, 1.0], [1000, 2], None, [0]),  # one is always there
    ],
)
def test_the_least_dear_types_are_looked_at(
    dear: list[float], choices: list[int], keep: int | None, places: list[int]
) -> None:
    assert worthwhile(np.array(dear), np.array(choices), 100, keep) == places
