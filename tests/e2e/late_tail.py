"""A pipeline whose operator is slow on one input in eight, but on none that it is planned on."""

from __future__ import annotations

import time

from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.io.datasets import Dataset, Example
from circinus.pipelines.model.operators import Operator, OperatorSpec, Settings
from circinus.pipelines.model.payload import Payload
from tests.device_work import of_device


def _read(inputs: Payload, knobs: Settings) -> Payload:
    assert isinstance(inputs, int)
    time.sleep(0.06 if inputs % 8 == 7 else 0.01)  # four times as long on a device
    return inputs


def _examples(count: int, seed: int) -> Dataset:
    step = 8 if seed == 0 else 1  # multiples of eight are planned on
    inputs = [step * i for i in range(count)]
    return Dataset(name="numbers", examples=[Example(input=i, expected=i) for i in inputs])


pipeline = Pipeline(
    name="late-tail",
    operators=(Operator(spec=of_device(OperatorSpec(name="reader")), run=_read),),
    score=lambda output, expected: float(output == expected),
    examples=_examples,
)
