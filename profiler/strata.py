"""In which order to profile the inputs of a data set (Circinus 4.1, Theorem 1, appendix C).

Inputs that look alike tend to be scored alike. Drawing from every group of alike inputs in turn
therefore gives the same mean with less variance than drawing at random. The one rule: the order
is fixed before anything is measured, so all configurations see the same inputs in the same order.

    symbol  meaning
    n       number of inputs
    F       number of features of an input
    K       number of strata
    p_k     weight of stratum k: its fraction of the inputs
    mu_k    mean score in stratum k
    var_k   variance of the score in stratum k
    N       number of inputs drawn
"""

from __future__ import annotations

import warnings

import numpy as np
import numpy.typing as npt
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from pipelines import checks
from pipelines.profile import FloatArray

IntArray = npt.NDArray[np.int64]

DEFAULT_STRATA = 10
"""K: divides the 50 inputs that the t-test asks for at least, with five draws of each stratum.
The paper leaves K open."""


def profiling_order(
    features: FloatArray | None,  # (n, F)
    count: int,
    rng: np.random.Generator,
    *,
    strata: int = DEFAULT_STRATA,
) -> IntArray:  # (n,)
    """Give every input once: round robin over strata, random within a stratum.

    Without features, or with fewer inputs than strata, it is a random order.

    Args:
        features: Cheap features of every input, finite; None when there are none.
        count: n, number of inputs, `>= 1`.
        rng: Source of the random choices: equal generators give equal orders.
        strata: K, `>= 1`.

    Raises:
        InvalidInput: If an argument is out of range or the features have not n rows.
    """
    checks.require(count >= 1, "inputs", "must be >= 1", count)
    checks.require(strata >= 1, "strata", "must be >= 1", strata)
    if features is None or count < strata:
        return rng.permutation(count).astype(np.int64)
    rows_rule = f"must have shape ({count}, features)"
    fits = features.ndim == 2 and len(features) == count
    checks.require(fits, "features", rows_rule, features.shape)
    return round_robin(equal_strata(features, rng, strata=strata), rng)


def equal_strata(
    features: FloatArray,  # (n, F)
    rng: np.random.Generator,
    *,
    strata: int,
) -> IntArray:  # (n,)
    """Give the stratum of every input; sizes differ by at most one.

    K-means once over standardised features, then every input goes to the nearest centre that
    has room, those first that would lose most by going elsewhere. The paper asks for strata of
    equal size (C.2) and does not say how to get them.

    Raises:
        InvalidInput: If a feature is not finite or there are fewer inputs than strata.
    """
    bad = features[~np.isfinite(features)]
    checks.require(bad.size == 0, "features", "must be finite", bad[:1].tolist())
    rule = f"must be at most the number of inputs, {len(features)}"
    checks.require(strata <= len(features), "strata", rule, strata)
    points = _standardised(features)
    # A random order of the points, so that ties do not follow the order of the data.
    shuffled = rng.permutation(len(points))
    distances = _distances(points[shuffled], rng, strata)
    labels = np.empty(len(points), dtype=np.int64)
    labels[shuffled] = _fill(distances)
    return labels


def round_robin(
    labels: IntArray,  # (n,)
    rng: np.random.Generator,
) -> IntArray:  # (n,)
    """Give every input once: one of each stratum in turn, random within a stratum.

    Each round visits the strata in a random order of its own: a stop within a round then favours
    no stratum. Strata that are used up are passed over.
    """
    shuffled = rng.permutation(len(labels))
    by_stratum = shuffled[np.argsort(labels[shuffled], kind="stable")]
    sizes = np.bincount(labels)
    starts = np.repeat(np.cumsum(sizes) - sizes, sizes)
    rounds = np.arange(len(labels)) - starts
    turn = np.lexsort((rng.random(len(labels)), rounds))
    return by_stratum[turn].astype(np.int64)


def random_variance(
    weights: FloatArray,  # (K,)
    means: FloatArray,  # (K,)
    variances: FloatArray,  # (K,)
    samples: int,
) -> float:
    """Give the variance of the mean of N random draws (Theorem 1, Sigma_0 squared).

    (sum p_k var_k + sum p_k (mu_k - sum p_j mu_j)^2) / N, for independent draws.
    """
    between = weights @ (means - weights @ means) ** 2
    return float((weights @ variances + between) / samples)


def stratified_variance(
    weights: FloatArray,  # (K,)
    variances: FloatArray,  # (K,)
    samples: int,
) -> float:
    """Give the variance of the mean of N draws, N p_k per stratum (Theorem 1, Sigma_1 squared).

    (sum p_k var_k) / N, for independent draws within the strata.
    """
    return float(weights @ variances / samples)


def _standardised(features: FloatArray) -> FloatArray:
    # Divided by the largest value first: squares of huge features would overflow.
    peak = np.abs(features).max(axis=0)
    scaled = features / np.where(peak > 0, peak, 1.0)
    varies = scaled.std(axis=0) > 1e-12  # a constant tells nothing, its rounding errors neither
    if not varies.any():
        return np.zeros((len(features), 1))
    return np.asarray(StandardScaler().fit_transform(scaled[:, varies]))


def _distances(
    points: FloatArray,  # (n, F)
    rng: np.random.Generator,
    strata: int,
) -> FloatArray:  # (n, K)
    """Give the distance of every point from the centre of every stratum."""
    seed = int(rng.integers(2**31))
    # One thread: equal seeds give equal bits. That fewer points are unlike than there are strata
    # is no fault: alike inputs then go to any of them.
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        means = KMeans(strata, n_init=1, random_state=seed).fit(points)
    return np.asarray(means.transform(points))


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
