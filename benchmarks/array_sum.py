"""A pipeline that costs next to nothing on 86 kB of input, to time what is around operators."""

from __future__ import annotations

import numpy as np

from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.io.datasets import Dataset, Example
from circinus.pipelines.model.operators import Operator, OperatorSpec, Settings
from circinus.pipelines.model.payload import Payload

_BYTES = 86_016


def _sum(inputs: Payload, knobs: Settings) -> Payload:
    assert isinstance(inputs, np.ndarray)
    return int(inputs.sum())


def _examples(count: int, seed: int) -> Dataset:
    rng = np.random.default_rng(seed)
    arrays = [rng.integers(0, 256, _BYTES, dtype=np.uint8) for _ in range(count)]
    pairs = [Example(input=array, expected=int(array.sum())) for array in arrays]
    return Dataset(name="arrays", examples=pairs)


pipeline = Pipeline(
    name="array-sum",
    operators=(Operator(spec=OperatorSpec(name="sum"), run=_sum),),
    score=lambda output, expected: float(output == expected),
    examples=_examples,
)
