"""A pipeline that takes 10 ms a request, one at a time, and brings examples."""

from __future__ import annotations

import threading

from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.io.datasets import Dataset, Example
from circinus.pipelines.model.operators import Knob, Operator, OperatorSpec, Settings
from circinus.pipelines.model.payload import Payload
from tests.device_work import of_device


def _nap(inputs: Payload, knobs: Settings) -> Payload:
    threading.Event().wait(float(knobs["seconds"]))
    return inputs


def _numbers(count: int, seed: int) -> Dataset:
    return Dataset(name="numbers", examples=[Example(input=i, expected=i) for i in range(count)])


napping = Pipeline(
    name="napping",
    operators=(
        Operator(
            spec=of_device(
                OperatorSpec(name="nap", knobs=(Knob(name="seconds", values=(0.01, 0.02)),))
            ),
            run=_nap,
        ),
    ),
    score=lambda output, expected: float(output == expected),
    examples=_numbers,
)
