from __future__ import annotations

import re

import numpy as np
import pytest

from pipelines.errors import InvalidInput
from profiler.drawing import random_drawing
from profiler.strata import equal_strata


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize(
    ("shape", "count", "strata", "message"),
    [
        ((3, 1), 0, 2, "inputs must be >= 1, got 0."),
        ((3, 1), 3, 0, "strata must be >= 1, got 0."),
        ((3, 1), 4, 2, "features must have shape (4, features), got (3, 1)."),
        ((4,), 4, 2, "features must have shape (4, features), got (4,)."),
    ],
)
def test_what_cannot_be_drawn_is_refused(
    shape: tuple[int, ...], count: int, strata: int, message: str
) -> None:
    with pytest.raises(InvalidInput, match=re.escape(message)):
        random_drawing(np.zeros(shape), count, rng(), strata=strata)


@pytest.mark.parametrize("features", [None, np.zeros((20, 0)), np.zeros((20, 2))])
def test_every_input_comes_once_in_an_order_of_the_generator_alone(
    features: np.ndarray[tuple[int, int], np.dtype[np.float64]] | None,
) -> None:
    drawing = random_drawing(features, 20, rng())
    assert sorted(drawing.order.tolist()) == list(range(20))
    assert np.array_equal(drawing.order, random_drawing(None, 20, rng()).order)
    assert not np.array_equal(drawing.order, random_drawing(features, 20, rng(1)).order)


def test_without_features_or_with_few_inputs_nothing_is_known_of_them() -> None:
    assert random_drawing(None, 20, rng()).groups is None
    assert random_drawing(np.zeros((20, 0)), 20, rng()).groups is None
    assert random_drawing(np.zeros((5, 2)), 5, rng(), strata=6).groups is None


def test_groups_are_the_strata_in_the_order_drawn() -> None:
    features = rng(1).random((40, 2))
    generator = rng()
    order = generator.permutation(40)
    drawing = random_drawing(features, 40, rng(), strata=4)
    assert drawing.groups is not None
    assert drawing.groups.tolist() == equal_strata(features, generator, strata=4)[order].tolist()
