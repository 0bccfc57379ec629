"""A pipeline for tests of drift: a large picture is shrunk, then read, better with more effort.

In the data of seeds below 100 it is light and any effort reads right; in others it is dark.
Operators sleep, so that what they take does not depend on how loaded the computer is.
"""

from __future__ import annotations

import time

from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.io.datasets import Dataset, Example
from circinus.pipelines.model.operators import Knob, Operator, OperatorSpec, Settings
from circinus.pipelines.model.payload import Payload
from tests.device_work import of_device

PICTURE = bytes(10_000_000)
SHRINK_S, READ_S, EFFORT_S = 0.02, 0.04, 0.02
DARK = 100


def _shrink(inputs: Payload, knobs: Settings) -> Payload:
    time.sleep(SHRINK_S)
    if not isinstance(inputs, dict):
        raise TypeError("an input is {value, dark, picture}")
    return {"value": inputs["value"], "dark": inputs["dark"]}


def _read(inputs: Payload, knobs: Settings) -> Payload:
    effort = int(knobs["effort"])
    time.sleep(READ_S + EFFORT_S * effort)
    if not isinstance(inputs, dict):
        raise TypeError("a shrunk picture is {value, dark}")
    return inputs["value"] if effort == 3 or not inputs["dark"] else -1


def _examples(count: int, seed: int) -> Dataset:
    dark = seed >= DARK
    examples = [
        Example(input={"value": i, "dark": dark, "picture": PICTURE}, expected=i)
        for i in range(count)
    ]
    return Dataset(name="pictures", examples=examples)


pipeline = Pipeline(
    name="reading",
    operators=(
        Operator(spec=of_device(OperatorSpec(name="shrink")), run=_shrink),
        Operator(
            spec=of_device(
                OperatorSpec(
                    name="read", after=("shrink",), knobs=(Knob(name="effort", values=(1, 3)),)
                )
            ),
            run=_read,
        ),
    ),
    score=lambda output, expected: float(output == expected),
    metric="part of the pictures that are read right",
    examples=_examples,
)
