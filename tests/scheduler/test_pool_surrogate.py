"""The Gaussian process over counts, beside its closed form."""

from __future__ import annotations

from math import nan, sqrt
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.profile import FloatArray
from circinus.scheduler.pool.surrogate import NOISE, PoolSurrogateSettings, predicted

MOST = np.array([4.0, 8.0])
TRIED = np.array([[0.0, 0.0], [4.0, 8.0], [1.0, 6.0], [3.0, 2.0]])
WORTH = np.array([0.1, 0.5, 0.7, 0.4])
ASKED = np.array([[1.0, 6.0], [2.0, 5.0], [0.0, 8.0]])
UNLEARNT = PoolSurrogateSettings(steps=0)


@pytest.mark.parametrize(
    ("tried", "worth", "message"),
    [
        (np.empty((0, 2)), np.empty(0), "tried must not be empty"),
        (TRIED, WORTH[:3], r"worth must have shape \(4,\)"),
        (TRIED, np.array([0.1, nan, 0.2, 0.3]), "worth must be finite"),
        (TRIED[:, :1], WORTH, r"tried must have 2 columns"),
    ],
)
def test_what_makes_no_sense_is_refused(
    tried: FloatArray, worth: FloatArray, message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        predicted(tried, worth, ASKED, MOST)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"steps": -1}, "surrogate.steps must be finite and >= 0"),
        ({"shortest": 0.0}, "surrogate.shortest must be finite and > 0"),
        ({"first_length": 0.01}, "surrogate.first_length must be between"),
        ({"longest": 0.3}, "surrogate.first_length must be between"),
    ],
)
def test_settings_that_make_no_sense_are_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        PoolSurrogateSettings(**changed)


def closed_form(length: float) -> tuple[FloatArray, FloatArray]:
    def kernel(a: FloatArray, b: FloatArray) -> FloatArray:
        r = sqrt(5) * np.linalg.norm((a[:, None] - b[None]) / MOST / length, axis=-1)
        return np.asarray((1 + r + r**2 / 3) * np.exp(-r))  # Matern 5/2

    inverse = np.linalg.inv(kernel(TRIED, TRIED) + NOISE * np.eye(len(TRIED)))
    cross, scale = kernel(ASKED, TRIED), WORTH.std()
    mean = WORTH.mean() + cross @ inverse @ (WORTH - WORTH.mean())
    variance = 1 - np.einsum("pn,nm,pm->p", cross, inverse, cross)
    return mean, scale * np.sqrt(variance)


def test_it_predicts_what_the_closed_form_does() -> None:
    mean, deviation = predicted(TRIED, WORTH, ASKED, MOST, UNLEARNT)
    by_hand = closed_form(UNLEARNT.first_length)
    assert mean == pytest.approx(by_hand[0], abs=1e-7)
    assert deviation == pytest.approx(by_hand[1], abs=1e-6)


def test_a_pool_that_was_tried_is_known() -> None:
    mean, deviation = predicted(TRIED, WORTH, TRIED, MOST)
    assert mean == pytest.approx(WORTH, abs=1e-4)
    assert (deviation < 1e-3).all()


@given(st.integers(0, 4), st.integers(0, 8), st.floats(-0.49, 0.49), st.floats(-0.49, 0.49))
@settings(max_examples=20, deadline=None)
def test_counts_that_round_alike_are_one_pool(a: int, b: int, da: float, db: float) -> None:
    asked = np.array([[a, b], [a + da, b + db]], dtype=np.float64)
    mean, deviation = predicted(TRIED, WORTH, asked, MOST, UNLEARNT)
    assert mean[0] == mean[1]
    assert deviation[0] == deviation[1]


def test_equal_worths_are_no_news_and_a_type_of_which_there_is_none_does_not_matter() -> None:
    most = np.array([4.0, 0.0])
    tried = np.array([[1.0, 0.0], [4.0, 0.0]])
    mean, deviation = predicted(tried, np.array([0.3, 0.3]), tried[:1] + 1, most)
    assert mean == pytest.approx([0.3])
    assert np.isfinite(deviation).all()


def test_a_length_per_type_is_longer_where_nothing_depends_on_the_type() -> None:
    rng = np.random.default_rng(0)
    tried = rng.integers(0, [5, 9], size=(30, 2)).astype(np.float64)
    asked = np.array([[2.0, 0.0], [2.0, 8.0]])
    each = PoolSurrogateSettings(per_type=True, steps=50)
    mean, _ = predicted(tried, np.sin(2 * tried[:, 0]), asked, MOST, each)
    assert mean == pytest.approx([np.sin(4.0)] * 2, abs=0.05)


def test_the_number_of_threads_is_left_as_it_was() -> None:
    before = torch.get_num_threads()
    predicted(TRIED, WORTH, ASKED, MOST)
    assert torch.get_num_threads() == before
