"""What a trained classifier is: named arrays, and the two functions that make and use them.

One rule: a model is arrays only, so that its file is read without running code from it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from pipelines.catalog.digits.geometry import FloatArray, IntArray

Weights: TypeAlias = Mapping[str, npt.NDArray[np.generic]]

TRAINED_BY_SEED = 0
"""Seed of whatever a training algorithm draws."""
LEAST_PROBABILITY = 1e-3
"""A class that a model rules out keeps this much: one frame must not silence the others."""


def floats(weights: Weights, name: str) -> FloatArray:
    """The array of that name, as numbers to calculate with."""
    return weights[name].astype(np.float32, copy=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Classifier:
    """A kind of model.

    Attributes:
        train: `train(features, labels) -> weights`; features (n_samples, n_features), labels
            (n_samples,) with each of the ten classes among them. Equal input, equal weights.
        predict: `predict(weights, features) -> log-probabilities`, (n_samples, 10) float32.
    """

    train: Callable[[FloatArray, IntArray], Weights]
    predict: Callable[[Weights, FloatArray], FloatArray]


def log_of(
    probabilities: npt.NDArray[np.floating],  # (n_samples, n_classes)
) -> FloatArray:  # (n_samples, n_classes)
    """Log-probabilities, with `LEAST_PROBABILITY` mixed in."""
    n_classes = probabilities.shape[-1]
    mixed = probabilities * (1 - n_classes * LEAST_PROBABILITY) + LEAST_PROBABILITY
    return np.asarray(np.log(mixed), dtype=np.float32)


def softmax(
    scores: npt.NDArray[np.floating],  # (n_samples, n_classes)
) -> npt.NDArray[np.floating]:  # (n_samples, n_classes)
    """Probabilities in proportion to `exp(scores)`."""
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))
