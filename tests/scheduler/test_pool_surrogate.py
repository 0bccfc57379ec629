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
from circinus.pipelines.model.profile import FloatArray
from circinus.scheduler.pool.ribbon import NOISE, PoolSurrogateSettings, predicted

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
        (TRIED[:, :1], WORTH, r"asked must have 1 columns"),
    ],
)
def test_what_makes_no_sense_is_refused(
    tried: FloatArray, worth: FloatArray, message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        predicted(tried, worth, ASKED)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"steps": -1}, "surrogate.steps must be finite and >= 0"),
        ({"shortest": 0.0}, "surrogate.shortest must be finite and > 0"),
        ({"first_length": 0.01}, "surrogate.first_length must be between"),
        ({"longest": 1.0}, "surrogate.first_length must be between"),
    ],
)
def test_settings_that_make_no_sense_are_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        PoolSurrogateSettings(**changed)


def closed_form(length: float) -> tuple[FloatArray, FloatArray]:
    def kernel(a: FloatArray, b: FloatArray) -> FloatArray:
        r = sqrt(5) * np.linalg.norm((a[:, None] - b[None]) / length, axis=-1)
        return np.asarray((1 + r + r**2 / 3) * np.exp(-r))  # Matern 5/2

    inverse = np.linalg.inv(kernel(TRIED, TRIED) + NOISE * np.eye(len(TRIED)))
    cross, scale = kernel(ASKED, TRIED), WORTH.std()
    mean = WORTH.mean() + cross @ inverse @ (WORTH - WORTH.mean())
    variance = 1 - np.einsum("pn,nm,pm->p", cross, inverse, cross)
    return mean, scale * np.sqrt(variance)


def test_it_predicts_what_the_closed_form_does() -> None:
    mean, deviation = predicted(TRIED, WORTH, ASKED, UNLEARNT)
    by_hand = closed_form(UNLEARNT.first_length)
    assert mean == pytest.approx(by_hand[0], abs=1e-7)
    assert deviation == pytest.approx(by_hand[1], abs=1e-6)


def test_a_pool_that_was_tried_is_known() -> None:
    mean, deviation = predicted(TRIED, WORTH, TRIED)
    assert mean == pytest.approx(WORTH, abs=1e-4)
    assert (deviation < 1e-3).all()


@given(st.integers(0, 4), st.integers(0, 8), st.floats(-0.49, 0.49), st.floats(-0.49, 0.49))
@settings(max_examples=20, deadline=None)
def test_counts_that_round_alike_are_one_pool(a: int, b: int, da: float, db: float) -> None:
    asked = np.array([[a, b], [a + da, b + db]], dtype=np.float64)
    mean, deviation = predicted(TRIED, WORTH, asked, UNLEARNT)
    assert mean[0] == mean[1]
    assert deviation[0] == deviation[1]


def test_equal_worths_are_no_news() -> None:
    mean, deviation = predicted(TRIED[:2], np.array([0.3, 0.3]), ASKED)
    assert mean == pytest.approx([0.3] * 3)
    assert np.isfinite(deviation).all()


def test_the_length_is_learnt() -> None:
    # a wave of 2 pi in 16: what lies between every second count is known within little
    tried = np.arange(0.0, 25.0, 2.0)[:, None]
    between = tried[:-1] + 1
    worth, truth = np.sin(tried[:, 0] * np.pi / 8), np.sin(between[:, 0] * np.pi / 8)
    learnt, _ = predicted(tried, worth, between)
    unlearnt, _ = predicted(tried, worth, between, UNLEARNT)
    assert np.abs(learnt - truth).max() < 0.5 * np.abs(unlearnt - truth).max()


def test_the_number_of_threads_is_left_as_it_was() -> None:
    before = torch.get_num_threads()
    predicted(TRIED, WORTH, ASKED)
    assert torch.get_num_threads() == before
