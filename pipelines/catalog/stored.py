"""Arrays that are computed once per machine, stored on disk, and read by every process.

A file is complete or absent: it is written beside its place and renamed, and a lock per file makes
processes that miss the same one compute it once. Files hold arrays only.
"""

from __future__ import annotations

import fcntl
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Arrays: TypeAlias = Mapping[str, npt.NDArray[np.generic]]


def stored_arrays(path: Path, make: Callable[[], Arrays]) -> Arrays:
    """Return the arrays of a file `.npz`; computed now if it is missing or cannot be read.

    Its folder is made when first needed, and belongs to such files alone.
    """
    if (arrays := _read(path)) is not None:
        return arrays
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # given up when the process ends, however it ends
        arrays = _read(path)  # another process may have made it while this one waited
        return _written(path, make()) if arrays is None else arrays


def _read(path: Path) -> Arrays | None:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return dict(arrays)
    except (FileNotFoundError, EOFError, ValueError, zipfile.BadZipFile):
        return None


def _written(path: Path, arrays: Arrays) -> Arrays:
    part = path.with_suffix(".part")
    with part.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)
    part.replace(path)
    return arrays
