"""Operator `classifier`: log-probabilities of the ten digits for each crop of each frame.

Trained models are stored on disk: made once per machine and version, read by every process. A file
is complete or absent: a model is written beside its place and renamed, and a lock per model makes
processes that miss the same one train it once.

    <user cache>/circinus/digits/<version>/<model>-<features>.npz

`XDG_CACHE_HOME` moves the user's cache, as for every program. Files hold arrays only.
"""

from __future__ import annotations

import fcntl
import zipfile
from collections.abc import Mapping
from functools import cache
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path

import numpy as np
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
    weights = _read(path)
    if weights is not None:
        return weights
    folder.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # given up when the process ends, however it ends
        weights = _read(path)  # another process may have trained it while this one waited
        return (
            _written(path, classifier.train(*training_set(kind))) if weights is None else weights
        )


def user_folder() -> Path:
    """Return models of this user, for this version of the code and of the libraries that train."""
    return platformdirs.user_cache_path("circinus") / "digits" / models_version()


@cache
def models_version() -> str:
    """Return what trained models depend on, as a short hash."""
    parts = [f"models {MODELS_VERSION}", *(f"{name} {version(name)}" for name in _LIBRARIES)]
    return blake2b("\n".join(parts).encode(), digest_size=6).hexdigest()


def _read(path: Path) -> Weights | None:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return dict(arrays)
    except (FileNotFoundError, EOFError, ValueError, zipfile.BadZipFile):
        return None


def _written(path: Path, weights: Weights) -> Weights:
    part = path.with_suffix(".part")
    with part.open("wb") as file:
        np.savez(file, allow_pickle=False, **weights)
    part.replace(path)
    return weights
