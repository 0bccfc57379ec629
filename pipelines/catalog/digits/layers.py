"""Classifiers `logreg` and `mlp`: dense layers with ReLU between them and softmax at the end."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from pipelines.catalog.digits.geometry import FloatArray, IntArray
from pipelines.catalog.digits.weights import (
    TRAINED_BY_SEED,
    Classifier,
    Weights,
    floats,
    log_of,
    softmax,
)

HIDDEN = 64


def logistic_regression() -> Classifier:
    """Multinomial logistic regression."""
    return Classifier(train=_train_logistic, predict=_predict)


def perceptron() -> Classifier:
    """One hidden layer of 64 units."""
    return Classifier(train=_train_perceptron, predict=_predict)


def _train_logistic(features: FloatArray, labels: IntArray) -> Weights:
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=0.02, max_iter=200).fit(features, labels)
    return _layers([model.coef_.T], [model.intercept_])


def _train_perceptron(features: FloatArray, labels: IntArray) -> Weights:
    from sklearn.neural_network import MLPClassifier

    model = MLPClassifier(
        (HIDDEN,),
        alpha=0.1,
        early_stopping=True,  # on a tenth of the samples; also ends without a warning
        n_iter_no_change=3,
        max_iter=60,
        random_state=TRAINED_BY_SEED,
    ).fit(features, labels)
    return _layers(model.coefs_, model.intercepts_)


def _layers(
    matrices: Sequence[npt.NDArray[np.floating]], offsets: Sequence[npt.NDArray[np.floating]]
) -> Weights:
    layers = enumerate(zip(matrices, offsets, strict=True))
    return {
        name: np.ascontiguousarray(value, dtype=np.float32)
        for number, pair in layers
        for name, value in zip((f"matrix{number}", f"offset{number}"), pair, strict=True)
    }


def _predict(weights: Weights, features: FloatArray) -> FloatArray:
    values = features
    depth = len(weights) // 2
    for number in range(depth):
        values = values @ floats(weights, f"matrix{number}") + floats(weights, f"offset{number}")
        if number < depth - 1:
            values = np.maximum(values, 0)
    return log_of(softmax(values))
