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

from pipelines.dataset import Dataset, Example
from pipelines.payload import content_hash
from pipelines.pipeline import Pipeline
from pipelines.trace import graph_to_dict

FloatArray = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Part:
    """All C configurations of a pipeline with O operators on one input; NaN where one failed.

    Attributes:
        score: Shape (C,).
        latency_s: Seconds of each operator, shape (C, O).
        output_bytes: What each operator handed on, shape (C, O).
    """

    score: FloatArray
    latency_s: FloatArray
    output_bytes: FloatArray


class PartStore:
    """A folder with a file per measured input.

    Args:
        folder: Made with the first part.
        pipeline: What is measured.
        dataset: On what.

    Raises:
        InvalidInput: If an input or an expected output is no payload.
    """

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
                return Part(
                    score=stored["score"],
                    latency_s=stored["latency_s"],
                    output_bytes=stored["output_bytes"],
                )
        except (OSError, KeyError, ValueError, EOFError, BadZipFile):  # torn: measured again
            return None

    def save(self, index: int, part: Part) -> None:
        """Keep the part of an input; it is whole or not there."""
        self._folder.mkdir(parents=True, exist_ok=True)
        unfinished = self._folder / "unfinished.npz"
        np.savez(
            unfinished,
            score=part.score,
            latency_s=part.latency_s,
            output_bytes=part.output_bytes,
            key=np.array(self._keys[index]),
        )
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
