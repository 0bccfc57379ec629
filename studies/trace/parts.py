"""What a trace study has measured so far, on disk, an input per file.

The one rule: a part is used again only for the very input, operators and knobs that it
was measured with.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt

from circinus.pipelines.dataset import Dataset, Example
from circinus.pipelines.payload import content_hash
from circinus.pipelines.pipeline import Pipeline
from circinus.pipelines.trace import graph_to_dict

FloatArray = npt.NDArray[np.float32]

_NAN = np.float32("nan")
_ARRAYS = ("score", "latency_s", "output_bytes")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Part:
    """All C configurations of a pipeline with O operators on one input; NaN where one failed."""

    score: FloatArray  # shape (C,)
    latency_s: FloatArray  # seconds of each operator, shape (C, O)
    output_bytes: FloatArray  # what each operator handed on, shape (C, O)

    @classmethod
    def empty(cls, configurations: int, operators: int) -> Part:
        """Give a part of which nothing is measured yet."""
        one, each = np.full(configurations, _NAN), np.full((configurations, operators), _NAN)
        return cls(score=one, latency_s=each, output_bytes=each.copy())


class PartStore:
    """A folder with a file per measured input; InvalidInput if an example is no payload."""

    def __init__(self, folder: Path, pipeline: Pipeline, dataset: Dataset) -> None:
        self._folder = folder
        self._keys = [_key(pipeline, example) for example in dataset.examples]

    def load(self, index: int) -> Part | None:
        """Give the part of an input; None when there is none, or one of something else."""
        try:
            # numpy leaves a torn file open when it opened it itself.
            with self._path(index).open("rb") as file, np.load(file, allow_pickle=False) as stored:
                if str(stored["key"]) != self._keys[index]:
                    return None
                return Part(**{name: stored[name] for name in _ARRAYS})
        except (OSError, KeyError, ValueError, EOFError, BadZipFile):  # torn: measured again
            return None

    def save(self, index: int, part: Part) -> None:
        """Keep the part of an input; it is whole or not there."""
        self._folder.mkdir(parents=True, exist_ok=True)
        unfinished = self._folder / "unfinished.npz"
        arrays = {name: getattr(part, name) for name in _ARRAYS}
        np.savez(unfinished, key=np.array(self._keys[index]), **arrays)
        unfinished.replace(self._path(index))

    def clear(self) -> None:
        """Remove all parts, and the folder if nothing else is in it."""
        for path in self._folder.glob("input-*.npz"):
            path.unlink()
        if self._folder.is_dir() and not any(self._folder.iterdir()):
            self._folder.rmdir()

    def _path(self, index: int) -> Path:
        return self._folder / f"input-{index:06}.npz"


def _key(pipeline: Pipeline, example: Example) -> str:
    parts = (
        graph_to_dict(pipeline.graph),
        [operator.version for operator in pipeline.by_name.values()],
        content_hash(example.input),
        content_hash(example.expected),
    )
    return blake2b(repr(parts).encode(), digest_size=16).hexdigest()
