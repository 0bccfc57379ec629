"""Classifier `svm`: one support vector machine with a Gaussian kernel per pair of classes.

Notation: `K(a, b) = exp(-gamma |a - b|^2)`; `d_ij(x) = sum_s w_s,ij K(x, s) + b_ij` is positive
where the machine of the pair i < j says i. A class's score is the sum over its pairs of the
log-probability `log sigmoid(SLOPE d)` that it wins: a product of experts, simpler than pairwise
coupling (Wu, Lin and Weng 2004), which needs an iteration.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np

from pipelines.catalog.digits.geometry import CLASSES, FloatArray, IntArray
from pipelines.catalog.digits.weights import Classifier, Weights, floats, log_of, softmax

PENALTY = 3.0
SLOPE = 3.0
PAIRS = np.array(list(combinations(range(CLASSES), 2)))  # (n_pairs, 2)


def support_vector_machine() -> Classifier:
    """Pairwise machines whose wins are added up as log-probabilities."""
    return Classifier(train=_train, predict=_predict)


def _train(features: FloatArray, labels: IntArray) -> Weights:
    from sklearn.svm import SVC

    gamma = 1.0 / (features.shape[1] * features.var())
    model = SVC(C=PENALTY, gamma=gamma).fit(features, labels)
    vectors = model.support_vectors_.astype(np.float32)
    return {
        "vectors": vectors,
        "half_norms": np.square(vectors).sum(axis=1) / 2,
        "coefficients": _per_pair(model.dual_coef_, model.n_support_).astype(np.float32),
        "offsets": model.intercept_.astype(np.float32),
        "gamma": np.array(gamma, dtype=np.float32),
    }


def _per_pair(
    dual: np.ndarray[tuple[int, int], np.dtype[np.float64]],  # (CLASSES - 1, n_vectors)
    counts: np.ndarray[tuple[int], np.dtype[np.int32]],  # (CLASSES,)
) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:  # (n_vectors, n_pairs)
    """Libsvm's coefficients, spread out: a vector of class c has one for each other class."""
    ends = np.cumsum(counts)
    spread = np.zeros((dual.shape[1], len(PAIRS)))
    for pair, (i, j) in enumerate(PAIRS):
        of_i, of_j = (slice(ends[c] - counts[c], ends[c]) for c in (i, j))
        spread[of_i, pair] = dual[j - 1, of_i]
        spread[of_j, pair] = dual[i, of_j]
    return spread


def _predict(weights: Weights, features: FloatArray) -> FloatArray:
    vectors, gamma = floats(weights, "vectors"), float(floats(weights, "gamma"))
    half_norms = np.square(features).sum(axis=1, keepdims=True) / 2
    half_distances = half_norms + floats(weights, "half_norms") - features @ vectors.T
    kernel = np.exp(-2 * gamma * half_distances)  # (n_samples, n_vectors)
    decisions = kernel @ floats(weights, "coefficients") + floats(weights, "offsets")
    scores = np.zeros((len(features), CLASSES), dtype=np.float32)
    for pair, (i, j) in enumerate(PAIRS):
        scores[:, i] -= np.logaddexp(0, -SLOPE * decisions[:, pair])
        scores[:, j] -= np.logaddexp(0, SLOPE * decisions[:, pair])
    return log_of(softmax(scores))
