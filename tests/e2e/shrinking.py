"""A pipeline for tests of searching on: the smaller a picture is made, the longer that takes.

Operators sleep, so that what they take does not depend on how loaded the computer is.
"""

from __future__ import annotations

import time

from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.io.datasets import Dataset, Example
from circinus.pipelines.model.operators import Knob, Operator, OperatorSpec, Settings
from circinus.pipelines.model.payload import Payload
from tests.device_work import of_device

SHRINK_S = (0.004, 0.008, 0.012, 0.027)
SIZE_BYTES = (10_000_000, 1_000_000, 150_000, 10_000)
READ_S = 0.04


def _shrink(inputs: Payload, knobs: Settings) -> Payload:
    effort = int(knobs["effort"])
    time.sleep(SHRINK_S[effort])
    if not isinstance(inputs, dict):
        raise TypeError("an input is {value, picture}")
    return {"value": inputs["value"], "picture": bytes(SIZE_BYTES[effort])}


def _read(inputs: Payload, knobs: Settings) -> Payload:
    time.sleep(READ_S)
    if not isinstance(inputs, dict):
        raise TypeError("a shrunk picture is {value, picture}")
    return inputs["value"]


def _examples(count: int, seed: int) -> Dataset:
    picture = bytes(SIZE_BYTES[0])
    examples = [Example(input={"value": i, "picture": picture}, expected=i) for i in range(count)]
    return Dataset(name="pictures", examples=examples)


pipeline = Pipeline(
    name="shrinking",
    operators=(
        Operator(
            spec=of_device(
                OperatorSpec(name="shrink", knobs=(Knob(name="effort", values=(0, 1, 2, 3)),))
            ),
            run=_shrink,
        ),
        Operator(spec=of_device(OperatorSpec(name="read", after=("shrink",))), run=_read),
    ),
    score=lambda output, expected: float(output == expected),
    metric="part of the pictures that are read right",
    examples=_examples,
)
