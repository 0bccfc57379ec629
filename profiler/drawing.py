"""In which order inputs are drawn, and what is known beforehand.

Inputs that look alike tend to be scored alike. Drawing from every group of alike inputs in turn
gives the same mean with less variance than drawing at random (Circinus 4.1, Theorem 1, appendix
C). But a verdict by betting is proven for a random order, not for a round robin over strata. So
by default the order is random, and the strata are passed to the rule, which then predicts an input
from alike ones: the same variance goes, the promise stays (see `docs/studies/profiling.md`).

The one rule: the order is fixed before anything is measured, so all configurations see the same
inputs in the same order.

    symbol  meaning
    n       number of inputs
    F       number of features of an input
    K       number of strata
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from threadpoolctl import threadpool_limits

from circinus.pipelines import checks
from circinus.pipelines.model.profile import FloatArray, IntArray

# deviates: ten-strata
DEFAULT_STRATA = 10
"""K: divides the 50 inputs that the t-test asks for at least, with five draws of each stratum.
The paper leaves K open."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Drawing:
    """The order of a query's inputs, the same for all its configurations."""

    # deviates: one-order-of-inputs
    order: IntArray  # every input once, shape (n,)
    groups: IntArray | None  # stratum of each in that order, shape (n,); None: nothing is known
    # what the strata of the order or groups are made of, or why there are none; empty: no strata
    # were looked for
    strata: str = ""


Sampling = Callable[[FloatArray | None, int, Generator], Drawing]
"""A way to draw inputs, `sampling(features, count, rng)`: equal generators, equal drawings.

Features are cheap ones of every input, finite, shape (n, F); None: there are none. InvalidInput if
there is no input, or the features have not n rows.
"""


def random_drawing(
    features: FloatArray | None, count: int, rng: Generator, *, strata: int = DEFAULT_STRATA
) -> Drawing:  # features (n, F)
    """Return a random order, with strata when there are features and enough inputs."""
    known = _usable(features, count, strata)
    order = rng.permutation(count).astype(np.int64)
    if known is None:
        return Drawing(order=order, groups=None)
    # Strata are made after the order, and from features alone: the order stays random.
    return Drawing(order=order, groups=equal_strata(known, rng, strata=strata)[order])


def stratified_drawing(
    features: FloatArray | None, count: int, rng: Generator, *, strata: int = DEFAULT_STRATA
) -> Drawing:  # features (n, F)
    """Return the round robin over strata of Circinus 4.1, random within a stratum.

    Where `no_strata` says why there are none, it is a random order.
    """
    known = _usable(features, count, strata)
    if known is None:
        return Drawing(order=rng.permutation(count).astype(np.int64), groups=None)
    order = round_robin(equal_strata(known, rng, strata=strata), rng)
    return Drawing(order=order, groups=None)


def no_strata(features: FloatArray | None, count: int, strata: int = DEFAULT_STRATA) -> str:
    """Return why inputs with these features have no strata, in words; empty: they have some."""
    if count < strata:
        return f"{count} inputs are fewer than {strata} strata"
    if features is None or features.size == 0:
        return "the inputs have no features that differ"
    equal = (features == features[:1]) & np.isfinite(features)
    return "the inputs have no features that differ" if equal.all() else ""


def _usable(features: FloatArray | None, count: int, strata: int) -> FloatArray | None:
    """Return the features; None where `no_strata` says why not."""
    checks.at_least("inputs", count, 1)
    checks.at_least("strata", strata, 1)
    if features is not None and count >= strata:
        fits = features.ndim == 2 and len(features) == count
        checks.require(fits, "features", f"must have shape ({count}, features)", features.shape)
    return None if no_strata(features, count, strata) else features


def equal_strata(features: FloatArray, rng: Generator, *, strata: int) -> IntArray:  # (n, F), (n,)
    """Return the stratum of every input; sizes differ by at most one.

    K-means once over standardised features, then every input goes to the nearest centre that has
    room, those first that would lose most by going elsewhere. The paper asks for strata of equal
    size (C.2) and does not state how to get them. InvalidInput if a feature is not finite or there
    are fewer inputs than strata.
    """
    # Slow to import: only where inputs have features.
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    bad = features[~np.isfinite(features)]
    checks.require(bad.size == 0, "features", "must be finite", bad[:1].tolist())
    rule = f"must be at most the number of inputs, {len(features)}"
    checks.require(strata <= len(features), "strata", rule, strata)
    points = _standardised(features)
    # A random order of the points, so that ties do not follow the order of the data.
    shuffled = rng.permutation(len(points))
    seed = int(rng.integers(2**31))
    # One thread: equal seeds give equal bits. That fewer points are unlike than there are strata
    # is no fault: alike inputs then go to any of them.
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        distances = KMeans(strata, n_init=1, random_state=seed).fit_transform(points[shuffled])
    labels = np.empty(len(points), dtype=np.int64)
    # deviates: nearly-equal-strata
    labels[shuffled] = _fill(distances)
    return labels


def round_robin(labels: IntArray, rng: Generator) -> IntArray:  # (n,) -> (n,)
    """Return every input once: one of each stratum in turn, random within a stratum.

    Each round visits the strata in a random order of its own: a stop within a round then favours
    no stratum. Strata that are used up are passed over.
    """
    shuffled = rng.permutation(len(labels))
    by_stratum = shuffled[np.argsort(labels[shuffled], kind="stable")]
    sizes = np.bincount(labels)
    starts = np.repeat(np.cumsum(sizes) - sizes, sizes)
    rounds = np.arange(len(labels)) - starts
    # deviates: rounds-in-random-order
    turn = np.lexsort((rng.random(len(labels)), rounds))
    return by_stratum[turn].astype(np.int64)


def _standardised(features: FloatArray) -> FloatArray:
    from sklearn.preprocessing import StandardScaler

    # Divided by the largest value first: squares of huge features would overflow.
    peak = np.abs(features).max(axis=0)
    scaled = features / np.where(peak > 0, peak, 1.0)
    varies = scaled.std(axis=0) > 1e-12  # a constant has no use, nor have its rounding errors
    if not varies.any():
        return np.zeros((len(features), 1))
    return np.asarray(StandardScaler().fit_transform(scaled[:, varies]))


def _fill(distances: FloatArray) -> IntArray:  # (n, K) -> (n,)
    count, strata = distances.shape
    least, roomier = divmod(count, strata)  # so many strata take one more
    preferred = np.argsort(distances, axis=1, kind="stable").tolist()
    stake = distances.min(axis=1) - distances.max(axis=1)
    labels = np.empty(count, dtype=np.int64)
    sizes = [0] * strata
    for point in np.argsort(stake, kind="stable").tolist():
        room = least + (roomier > 0)
        stratum = next(k for k in preferred[point] if sizes[k] < room)
        roomier -= sizes[stratum] == least
        sizes[stratum] += 1
        labels[point] = stratum
    return labels
