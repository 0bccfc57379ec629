"""Operator `classifier`: log-probabilities of the ten digits for each crop of each frame.

Trained models are kept on disk: made once per machine and version, read by every process. A file
is complete or absent: a model is written beside its place and renamed, and a lock per model makes
processes that miss the same one train it once.

    <user cache>/circinus/digits/<version>/<model>-<features>.npz

`XDG_CACHE_HOME` moves the user's cache, as for every program. Files hold arrays only.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType

import numpy as np
import platformdirs
from threadpoolctl import threadpool_limits

from circinus.pipelines.catalog.digits.convolution import CONVOLUTIONAL_NETWORK
from circinus.pipelines.catalog.digits.describing import SHAPES, kind_of
from circinus.pipelines.catalog.digits.geometry import CLASSES, FloatArray
from circinus.pipelines.catalog.digits.glyphs import training_set
from circinus.pipelines.catalog.digits.models import NUMPY_CLASSIFIERS, Classifier, Weights
from circinus.pipelines.errors import InvalidInput

CLASSIFIERS: Mapping[str, Classifier] = MappingProxyType(
    {**NUMPY_CLASSIFIERS, "cnn": CONVOLUTIONAL_NETWORK}
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


MODELS_VERSION = 1
"""Raise whenever training, the training set or the features change."""
_LIBRARIES = ("numpy", "scikit-learn", "scipy", "torch")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelStore:
    """Where trained models are kept."""

    folder: Path  # made when first needed; belongs to this store alone

    def weights(self, model: str, kind: str, classifier: Classifier) -> Weights:
        """The weights of a model for features of that kind; trained now if they are missing.

        A file that cannot be read counts as missing.
        """
        path = self.folder / f"{model}-{kind}.npz"
        found = _read(path)
        if found is not None:
            return found
        self.folder.mkdir(parents=True, exist_ok=True)
        with _alone(path.with_suffix(".lock")):
            found = _read(path)  # another process may have trained it while this one waited
            if found is not None:
                return found
            weights = classifier.train(*training_set(kind))
            _write(path, weights)
            return weights


def user_store() -> ModelStore:
    """The store of this user, for this version of the code and of the libraries that train."""
    return ModelStore(
        folder=platformdirs.user_cache_path("circinus") / "digits" / models_version()
    )


@cache
def models_version() -> str:
    """What trained models depend on, as a short hash."""
    parts = [f"models {MODELS_VERSION}", *(f"{name} {version(name)}" for name in _LIBRARIES)]
    return blake2b("\n".join(parts).encode(), digest_size=6).hexdigest()


def _read(path: Path) -> Weights | None:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return dict(arrays)
    except (FileNotFoundError, EOFError, ValueError, zipfile.BadZipFile):
        return None


def _write(path: Path, weights: Weights) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.stem, suffix=".part")
    part = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez(file, allow_pickle=False, **weights)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Hold the lock of that file; it is given up when the process ends, however it ends."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
