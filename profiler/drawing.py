"""In which order inputs are drawn, and what is known of them beforehand.

A verdict by betting is proven for a random order, not for a round robin over strata. So by default
the order is random, and the strata are told to the rule, which then predicts an input from alike
ones: the same variance goes, the promise stays (see `docs/studies/profiling.md`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from pipelines import checks
from pipelines.profile import FloatArray
from profiler.strata import DEFAULT_STRATA, IntArray, equal_strata, profiling_order


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Drawing:
    """The order of a query's inputs, the same for all its configurations.

    Attributes:
        order: Every input once, shape (n,).
        groups: Stratum of every input in that order, shape (n,); None: nothing is known of them.
    """

    order: IntArray
    groups: IntArray | None


class Sampling(Protocol):
    """A way to draw inputs."""

    def __call__(
        self, features: FloatArray | None, count: int, rng: np.random.Generator
    ) -> Drawing:
        """Give the drawing of so many inputs."""


def stratified_drawing(
    features: FloatArray | None,  # (n, F)
    count: int,
    rng: np.random.Generator,
) -> Drawing:
    """Give the round robin over strata of Circinus 4.1, see `profiler.strata.profiling_order`."""
    usable = features is not None and features.ndim == 2 and features.shape[1] > 0
    return Drawing(order=profiling_order(features if usable else None, count, rng), groups=None)


def random_drawing(
    features: FloatArray | None,  # (n, F)
    count: int,
    rng: np.random.Generator,
    *,
    strata: int = DEFAULT_STRATA,
) -> Drawing:
    """Give a random order, with strata when there are features and enough inputs.

    Args:
        features: Cheap features of every input, finite; None when there are none.
        count: n, number of inputs, `>= 1`.
        rng: Source of the random choices: equal generators give equal drawings.
        strata: K, `>= 1`.

    Raises:
        InvalidInput: If an argument is out of range or the features have not n rows.
    """
    checks.require(count >= 1, "inputs", "must be >= 1", count)
    checks.require(strata >= 1, "strata", "must be >= 1", strata)
    order = rng.permutation(count).astype(np.int64)
    if features is None or count < strata:
        return Drawing(order=order, groups=None)
    fits = features.ndim == 2 and len(features) == count
    checks.require(fits, "features", f"must have shape ({count}, features)", features.shape)
    if features.shape[1] == 0:
        return Drawing(order=order, groups=None)
    # Strata are made after the order, and from features alone: the order stays random.
    return Drawing(order=order, groups=equal_strata(features, rng, strata=strata)[order])
