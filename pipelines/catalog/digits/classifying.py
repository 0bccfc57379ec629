"""Operator `classifier`: log-probabilities of the ten digits for each crop of each frame."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from threadpoolctl import threadpool_limits

from pipelines.catalog.digits.convolution import convolutional_network
from pipelines.catalog.digits.describing import SHAPES, kind_of
from pipelines.catalog.digits.geometry import CLASSES, FloatArray
from pipelines.catalog.digits.layers import logistic_regression, perceptron
from pipelines.catalog.digits.model_store import ModelStore, user_store
from pipelines.catalog.digits.neighbours import nearest_neighbours
from pipelines.catalog.digits.support_vectors import support_vector_machine
from pipelines.catalog.digits.trees import decision_tree, random_forest
from pipelines.catalog.digits.weights import Classifier, Weights
from pipelines.errors import InvalidInput

CLASSIFIERS: Mapping[str, Classifier] = MappingProxyType(
    {
        "tree": decision_tree(),
        "logreg": logistic_regression(),
        "knn": nearest_neighbours(),
        "svm": support_vector_machine(),
        "rf100": random_forest(),
        "mlp": perceptron(),
        "cnn": convolutional_network(),
    }
)


def classified(
    features: FloatArray,  # (n_frames, n_digits, n_features)
    *,
    model: str,
) -> FloatArray:  # (n_frames, n_digits, CLASSES)
    """Log-probabilities of the digits by that model, trained now if it never was."""
    if model not in CLASSIFIERS:
        raise InvalidInput.of("model", f"must be one of {', '.join(CLASSIFIERS)}", model)
    kind = kind_of(features.shape[2])
    samples = features.reshape(-1, features.shape[2])
    rows = CLASSIFIERS[model].predict(_loaded(user_store(), model, kind), samples)
    return rows.reshape(*features.shape[:2], CLASSES)


def prepare_models() -> None:
    """Train every model that the user's store lacks, about 20 s in all."""
    for kind in SHAPES:
        for model in CLASSIFIERS:
            _loaded(user_store(), model, kind)


@cache
def _loaded(store: ModelStore, model: str, kind: str) -> Weights:
    # Operators are timed, and worker processes share the cores: one numeric thread from here on.
    threadpool_limits(limits=1)
    return store.weights(model, kind, CLASSIFIERS[model])
