"""Operator `classifier`: log-probabilities of the ten digits for each crop of each frame.

Trained models are stored on disk, made once per machine and version: see
`pipelines.catalog.stored`.

    <user cache>/circinus/digits/<version>/<model>-<features>.npz

`XDG_CACHE_HOME` moves the user's cache, as for every program. Files hold arrays only.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path

import platformdirs
from threadpoolctl import threadpool_limits

from circinus.pipelines.catalog.digits.clips import training_set
from circinus.pipelines.catalog.digits.describing import SHAPES, kind_of
from circinus.pipelines.catalog.digits.geometry import CLASSES, FloatArray
from circinus.pipelines.catalog.digits.models import (
    CONVOLUTIONAL_NETWORK,
    NUMPY_CLASSIFIERS,
    Classifier,
    Weights,
)
from circinus.pipelines.catalog.stored import stored_arrays

CLASSIFIERS: Mapping[str, Classifier] = {**NUMPY_CLASSIFIERS, "cnn": CONVOLUTIONAL_NETWORK}


def classified(features: FloatArray, *, model: str) -> FloatArray:  # (n, m, f) -> (n, m, CLASSES)
    """Return log-probabilities of the digits by that model, trained now if it never was."""
    kind = kind_of(features.shape[2])
    samples = features.reshape(-1, features.shape[2])
    rows = CLASSIFIERS[model].predict(_loaded(user_folder(), model, kind), samples)
    return rows.reshape(*features.shape[:2], CLASSES)


def prepare_models() -> None:
    """Train every model that the user's store lacks, about 20 s in all."""
    for kind in SHAPES:
        for model in CLASSIFIERS:
            _loaded(user_folder(), model, kind)


@cache
def _loaded(folder: Path, model: str, kind: str) -> Weights:
    # Operators are timed, and worker processes share the cores: one numeric thread from here on.
    threadpool_limits(limits=1)
    return stored_weights(folder, model, kind, CLASSIFIERS[model])


MODELS_VERSION = 1  # raise whenever training, the training set or the features change
_LIBRARIES = ("numpy", "scikit-learn", "scipy", "torch")


def stored_weights(folder: Path, model: str, kind: str, classifier: Classifier) -> Weights:
    """Return the weights of a model for features of that kind; trained now if they are missing.

    The folder is made when first needed, and belongs to models alone. A file that cannot be read
    counts as missing.
    """
    path = folder / f"{model}-{kind}.npz"
    return stored_arrays(path, lambda: classifier.train(*training_set(kind)))


def user_folder() -> Path:
    """Return models of this user, for this version of the code and of the libraries that train."""
    return platformdirs.user_cache_path("circinus") / "digits" / models_version()


@cache
def models_version() -> str:
    """Return what trained models depend on, as a short hash."""
    parts = [f"models {MODELS_VERSION}", *(f"{name} {version(name)}" for name in _LIBRARIES)]
    return blake2b("\n".join(parts).encode(), digest_size=6).hexdigest()
