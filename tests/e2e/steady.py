"""A pipeline whose demand hardly depends on how busy the machine is.

It waits far longer than any process waits for its turn.
"""

from __future__ import annotations

import time

from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.io.datasets import Dataset, Example
from circinus.pipelines.model.operators import Knob, Operator, OperatorSpec, Settings
from circinus.pipelines.model.payload import Payload
from tests.device_work import of_device

SECONDS = 0.15


def _wait(inputs: Payload, knobs: Settings) -> Payload:
    time.sleep(SECONDS * int(knobs["rounds"]))
    return inputs


def _examples(count: int, seed: int) -> Dataset:
    values = [seed * 1000 + i for i in range(count)]
    examples = [Example(input={"value": v}, expected={"value": v}) for v in values]
    return Dataset(name="values", examples=examples)


pipeline = Pipeline(
    name="steady",
    operators=(
        Operator(
            spec=of_device(OperatorSpec(name="wait", knobs=(Knob(name="rounds", values=(1,)),))),
            run=_wait,
        ),
    ),
    score=lambda output, expected: float(output == expected),
    metric="part of the values that came back",
    examples=_examples,
)
