"""Features of inputs, of which strata are made: a pipeline's own, or generic ones of any payload.

Circinus 4.1 clusters profiling data "based on input features" and leaves open which. A pipeline
that knows better has a feature map; for others sizes, moments and kinds of what inputs hold stand
in. The one rule: features depend on the inputs alone, and cost little beside a run of a pipeline.

    symbol  meaning
    n       number of inputs
    F       number of features of an input
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import log1p
from typing import Any

import numpy as np
import numpy.typing as npt

from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.io.trace import Trace
from circinus.pipelines.model.payload import Payload
from circinus.pipelines.model.profile import FloatArray

_MOST_FEATURES = 64
"""Of generic ones: those that most inputs have."""
_DEEPEST = 3
"""Of mappings within mappings; what lies deeper counts as present alone."""
_MOST_ITEMS = 32
"""Of a list that holds no numbers: described by its first items."""
_MOST_VALUES = 65_536
"""Of an array: a larger one is thinned out along all its axes."""
_MOST_AXES = 3
"""Along which change is looked at: rows and columns of an image; moments, too, of a clip."""
_MOST_CHARACTERS = 20_000
"""Of a text, whose kinds of characters are counted."""
_LARGEST = 1e30
"""Any feature's magnitude: a float32 of a trace holds it, and so do sums over inputs."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class InputFeatures:
    """Features of all inputs of a data set, and where they are from."""

    values: FloatArray  # shape (n, F); F may be 0
    source: str  # what they are, in words: "7 generic features of the inputs"


def features_of(pipeline: Pipeline, inputs: Iterable[Payload]) -> InputFeatures:
    """Return the features of at least one input: the pipeline's own, else `generic_features`."""
    if pipeline.features is None:
        values = generic_features([*inputs])
        return InputFeatures(
            values=values, source=f"{values.shape[1]} generic features of the inputs"
        )
    own = np.stack([np.asarray(pipeline.features(item), dtype=np.float64) for item in inputs])
    count = own.shape[1] if own.ndim == 2 else 0
    return InputFeatures(values=own, source=f"{count} features of pipeline {pipeline.name}")


def recorded_features(trace: Trace) -> InputFeatures:
    """Return the features that a trace holds of its inputs."""
    values = trace.features.astype(np.float64)
    return InputFeatures(values=values, source=f"{values.shape[1]} features of the trace")


# deviates: generic-features
def generic_features(inputs: Sequence[Payload]) -> FloatArray:  # (n, F)
    """Return what differs among inputs of any kind, finite, at most 64 columns.

    A column is a figure of a value at one place of an input (`document.words`, say), in the
    alphabetical order of names. Where an input has no such value it is 0, and the column that
    says of what kind the value is, too. Sizes are logarithms: strata of lengths go by ratio.
    Columns in which all inputs are equal are left out.
    """
    rows = [dict(_described(item, "", 0)) for item in inputs]
    counts = Counter(name for row in rows for name in row)
    names = sorted(counts, key=lambda name: (-counts[name], name))[: 4 * _MOST_FEATURES]
    table = np.array([[row.get(name, 0.0) for name in names] for row in rows], dtype=np.float64)
    table = table.reshape(len(rows), len(names))
    table = np.clip(np.nan_to_num(table, posinf=_LARGEST, neginf=-_LARGEST), -_LARGEST, _LARGEST)
    differing = np.flatnonzero((table != table[:1]).any(axis=0))[:_MOST_FEATURES]
    return table[:, sorted(differing, key=lambda column: names[column])]


def _described(value: object, path: str, depth: int) -> Iterator[tuple[str, float]]:
    """Yield the figures of a value by name; the first has its kind."""
    yield f"{path}.is {_kind(value)}", 1.0
    if isinstance(value, Mapping):
        yield f"{path}.keys", log1p(len(value))
        for key in value if depth < _DEEPEST else ():
            yield from _described(value[key], f"{path}.{key}", depth + 1)
    elif isinstance(value, list):
        yield f"{path}.items", log1p(len(value))
        yield from _of_items(value, path, depth)
    elif isinstance(value, str):
        yield from _of_text(value, path)
    elif isinstance(value, bytes):
        yield f"{path}.bytes", log1p(len(value))
    elif isinstance(value, np.ndarray):
        yield from _of_array(np.asarray(value), path)
    elif isinstance(value, bool | int | float | np.number | np.bool_):
        yield f"{path}.value", _number(value)


def _kind(value: object) -> str:
    if isinstance(value, np.ndarray):
        return f"array of {value.ndim} axes and {value.dtype.kind}"
    if isinstance(value, int | float | np.number) and not isinstance(value, bool):
        return "number"
    return type(value).__name__


def _number(value: float | np.number | np.bool_) -> float:
    try:
        return float(np.real(value))
    except OverflowError:  # a whole number beyond all floats
        return _LARGEST if value > 0 else -_LARGEST


def _of_items(values: list[Any], path: str, depth: int) -> Iterator[tuple[str, float]]:
    """Yield the moments of a list of numbers, of another the means of its items' figures."""
    if values and all(_kind(each) == "number" for each in values):
        yield from _of_array(np.array([_number(each) for each in values]), path)
    elif depth < _DEEPEST:
        items = values[:_MOST_ITEMS]
        sums: defaultdict[str, float] = defaultdict(float)
        for each in items:
            for name, figure in _described(each, f"{path}[]", depth + 1):
                sums[name] += figure
        yield from ((name, total / len(items)) for name, total in sums.items())


def _of_text(text: str, path: str) -> Iterator[tuple[str, float]]:
    """Yield a text's length, words and lines, and of what kind its characters are."""
    yield f"{path}.characters", log1p(len(text))
    part = text[:_MOST_CHARACTERS]
    words = part.split()
    yield f"{path}.words", log1p(len(words))
    yield f"{path}.lines", log1p(part.count("\n"))
    if not part:
        return
    tests = {
        "letters": str.isalpha,
        "capitals": str.isupper,
        "digits": str.isdigit,
        "spaces": str.isspace,
        "beyond ASCII": lambda character: not character.isascii(),
    }
    for name, test in tests.items():
        yield f"{path}.{name}", sum(map(test, part)) / len(part)
    yield f"{path}.characters of a word", sum(map(len, words)) / max(1, len(words))


def _of_array(array: npt.NDArray[Any], path: str) -> Iterator[tuple[str, float]]:
    """Yield the lengths of an array's axes, its moments, and the mean change along its axes.

    Of an image these are brightness, contrast and edges; of a clip, motion besides.
    """
    for axis, length in enumerate(array.shape):
        yield f"{path}.length {axis}", log1p(length)
    if array.dtype.kind not in "biufc" or array.size == 0:
        return
    thin = array.real[tuple(slice(None, None, step) for step in _steps(array.shape))]
    values = np.nan_to_num(thin.astype(np.float64), posinf=_LARGEST, neginf=-_LARGEST)
    values = np.clip(values, -_LARGEST, _LARGEST)
    mean, spread = float(values.mean()), float(values.std())
    yield f"{path}.mean", mean
    yield f"{path}.deviation", spread
    if spread > 0:
        yield f"{path}.skewness", float((((values - mean) / spread) ** 3).mean())
    for axis in range(min(values.ndim, _MOST_AXES)):
        if values.shape[axis] > 1:
            yield f"{path}.change along {axis}", float(np.abs(np.diff(values, axis=axis)).mean())


def _steps(shape: tuple[int, ...]) -> list[int]:
    """Return the step along each axis that leaves about the most values: the longest go first."""
    steps = [1] * len(shape)
    while np.prod([-(-n // s) for n, s in zip(shape, steps, strict=True)]) > _MOST_VALUES:
        lengths = [n / s for n, s in zip(shape, steps, strict=True)]
        steps[int(np.argmax(lengths))] *= 2
    return steps
