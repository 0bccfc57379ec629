"""The assignment against scipy's, and against what makes a dual solution prove it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

from circinus.scheduler.dispatch.assignment import NOBODY, assign
from circinus.scheduler.dispatch.policy import FloatArray, IntArray


def costs(rng: np.random.Generator, shape: tuple[int, int]) -> FloatArray:
    """Random ones, whole ones with many ties, or alike rows and columns, some pairs dear."""
    kind = rng.integers(0, 3)
    if kind == 0:
        cost = rng.random(shape)
    elif kind == 1:
        cost = rng.integers(0, 4, shape).astype(np.float64)
    else:
        cost = np.outer(rng.integers(1, 4, shape[0]), rng.choice([0.25, 0.5, 1.0], shape[1]))
    return np.asarray(np.where(rng.random(shape) < rng.choice([0.0, 0.3]), 1e3, cost))


def check_optimal(cost: FloatArray, u: FloatArray, v: FloatArray, object_of: IntArray) -> None:
    a, o = cost.shape
    rows = np.arange(a)
    assert len(set(object_of.tolist())) == a
    assert object_of.min() >= 0
    total = cost[rows, object_of].sum()
    assert total == pytest.approx(cost[linear_sum_assignment(cost)].sum(), abs=1e-9)
    # dual feasibility, complementary slackness, and so no gap between the two sums
    assert (cost - u[:, None] - v[None, :]).min() >= -1e-9
    assert v.max() <= 1e-12
    assert np.abs(cost[rows, object_of] - u - v[object_of]).max() <= 1e-9
    assert np.abs(v[np.setdiff1d(np.arange(o), object_of)]).max(initial=0.0) <= 1e-12
    assert total == pytest.approx(u.sum() + v.sum(), abs=1e-9)


@settings(max_examples=300, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), a=st.integers(1, 12), more=st.integers(0, 8))
def test_an_assignment_from_scratch_is_one_of_least_cost(seed: int, a: int, more: int) -> None:
    cost = costs(np.random.default_rng(seed), (a, a + more))
    v, object_of = np.zeros(a + more), np.full(a, NOBODY)
    u = assign(cost, v, object_of)
    check_optimal(cost, u, v, object_of)


@settings(max_examples=300, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), a=st.integers(1, 12), more=st.integers(0, 8))
def test_any_beginning_ends_at_one_of_least_cost(seed: int, a: int, more: int) -> None:
    rng = np.random.default_rng(seed)
    cost = costs(rng, (a, a + more))
    v = np.minimum(rng.normal(size=a + more), 0.0)
    object_of = rng.integers(NOBODY, a + more, a)  # some have the same
    u = assign(cost, v, object_of)
    check_optimal(cost, u, v, object_of)


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), a=st.integers(1, 12), more=st.integers(0, 8))
def test_changes_one_after_the_other_leave_it_at_least_cost(seed: int, a: int, more: int) -> None:
    rng = np.random.default_rng(seed)
    cost = costs(rng, (a, a + more))
    v, object_of = np.zeros(a + more), np.full(a, NOBODY)
    for _ in range(8):
        check_optimal(cost, assign(cost, v, object_of), v, object_of)
        a, o = cost.shape
        change = rng.integers(0, 5)
        if change == 0:  # rows change, pairs stay where they are tight
            cost = cost.copy()
            cost[rng.integers(0, a)] = costs(rng, (1, o))
        elif change == 1 and a > 1:  # an agent goes
            leaving = rng.integers(0, a)
            cost, object_of = np.delete(cost, leaving, 0), np.delete(object_of, leaving)
        elif change == 2 and a < o:  # an agent comes
            cost, object_of = np.vstack([cost, costs(rng, (1, o))]), np.append(object_of, NOBODY)
        elif change == 3:  # an object comes
            cost, v = np.hstack([cost, costs(rng, (a, 1))]), np.append(v, 0.0)
        elif change == 4 and a < o:  # an object goes
            leaving = rng.integers(0, o)
            cost, v = np.ascontiguousarray(np.delete(cost, leaving, 1)), np.delete(v, leaving)
            object_of = np.where(object_of == leaving, NOBODY, object_of)
            object_of = object_of - (object_of > leaving)


@pytest.mark.parametrize("shape", [(200, 200), (60, 200), (199, 200)])
def test_large_ones_are_as_exact(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(3)
    cost = rng.uniform(0.1, 2.0, shape)
    v, object_of = np.zeros(shape[1]), np.full(shape[0], NOBODY)
    for _ in range(5):
        check_optimal(cost, assign(cost, v, object_of), v, object_of)
        changed = rng.choice(shape[0], shape[0] // 10)
        cost[changed] = rng.uniform(0.1, 2.0, (len(changed), shape[1]))


def test_an_agent_that_goes_leaves_the_cheap_object_to_another() -> None:
    # both want the first object; once the first agent is gone the second moves there: 2, not 5
    cost = np.array([[1.0, 9.0], [2.0, 5.0]])
    v, object_of = np.zeros(2), np.full(2, NOBODY)
    assign(cost, v, object_of)
    assert object_of.tolist() == [0, 1]
    left = object_of[1:].copy()
    u = assign(cost[1:].copy(), v, left)
    assert left.tolist() == [0]
    assert u.sum() + v.sum() == 2.0
