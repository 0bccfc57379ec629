"""Files that users name, read without trust: nothing endless, nothing that claims to be large.

Its one rule: the size that a file states is compared with its real one before memory is asked for.
"""

from __future__ import annotations

import os
import tokenize
from math import prod
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from circinus.pipelines.errors import InvalidInput, Violation

LARGEST_FILE_BYTES = 2**28
"""Of one that is read in one go."""

_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def read_file(path: Path, field: str, largest: int = LARGEST_FILE_BYTES) -> bytes:
    """Return what a file holds; InvalidInput on `field` unless it can be read and is no larger."""
    with opened(path, field) as file:
        try:  # a file of /proc states 0
            known = os.fstat(file.fileno()).st_size
            data = b"" if known > largest else file.read(largest + 1)
        except OSError as error:
            raise InvalidInput.of(field, f"must be readable ({error.strerror})", path) from error
    if max(known, len(data)) > largest:
        raise InvalidInput([Violation(field, f"must have at most {largest} bytes", "more")])
    return data


def opened(path: Path, field: str) -> BinaryIO:
    """Return an open file; InvalidInput on `field` unless it is plain: no pipe, no device."""
    try:
        if path.is_file() or not path.exists():
            return path.open("rb")
    except (OSError, ValueError) as error:  # a name with NUL
        reason = getattr(error, "strerror", None) or error
        rule = f"must be a readable file ({reason})"
        raise InvalidInput.of(field, rule, str(path)) from error
    raise InvalidInput.of(field, "must be a file, not a folder, pipe or device", str(path))


def read_array(file: BinaryIO, size: int) -> npt.NDArray[np.generic]:
    """Return the array of a `.npy` file of so many bytes; ValueError if it is none, or is torn."""
    try:
        start = file.tell()
        version = np.lib.format.read_magic(file)
        if version not in _HEADERS:
            raise ValueError(f"version {version} of the format is not read")
        shape, _, dtype = _HEADERS[version](file)
        claimed = prod(shape) * dtype.itemsize
        if min(shape, default=0) < 0 or claimed > size - (file.tell() - start):
            raise ValueError(f"{size} bytes, whose header claims {claimed}")
        file.seek(start)
        array: npt.NDArray[np.generic] = np.lib.format.read_array(file, allow_pickle=False)
    except (TypeError, RecursionError, tokenize.TokenError, SyntaxError) as error:
        raise ValueError(f"a header that is none ({error})") from error
    return array
