"""A pipeline for tests that run a whole service: two operators that take a few milliseconds.

Every call of an operator by a planning worker is a line in the file that SLOW_SUM_LOG names.
"""

from __future__ import annotations

import json
import os
import time

from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.io.datasets import Dataset, Example
from circinus.pipelines.model.operators import Knob, Operator, OperatorSpec, Scaling, Settings
from circinus.pipelines.model.payload import Payload

BASE_S = 0.002
# Sleeps stand for a device's work, see `tests.device_work`; projects of their own copy this file.
HALVES = {1: 1.0, 2: 2.0}


def _note(operator: str, inputs: Payload, knobs: Settings) -> None:
    path = os.environ.get("SLOW_SUM_LOG")
    if path is None:
        return
    with open(path, "a") as log:
        log.write(json.dumps([os.getpid(), operator, str(inputs), dict(knobs)]) + "\n")


def _double(inputs: Payload, knobs: Settings) -> Payload:
    _note("double", inputs, knobs)
    time.sleep(BASE_S * float(knobs["effort"]))
    if not isinstance(inputs, dict):
        raise TypeError("an input is {value: number}")
    value = inputs["value"]
    if not isinstance(value, int):
        raise TypeError("value must be a whole number")
    # With less effort every so many inputs are wrong.
    return 2 * value + (1 if value % (3 * int(knobs["effort"])) == 0 else 0)


def _shift(inputs: Payload, knobs: Settings) -> Payload:
    _note("shift", inputs, knobs)
    time.sleep(BASE_S)
    if not isinstance(inputs, int):
        raise TypeError("must get a whole number")
    return inputs + int(knobs["by"])


def _examples(count: int, seed: int) -> Dataset:
    values = [seed % 1000 * 1000 + i + 1 for i in range(count)]
    examples = [Example(input={"value": v}, expected=2 * v + 1) for v in values]
    return Dataset(name="sums", examples=examples)


pipeline = Pipeline(
    name="slow-sum",
    operators=(
        Operator(
            spec=OperatorSpec(
                name="double",
                knobs=(Knob(name="effort", values=(1, 2, 3, 4)),),
                scaling=Scaling.BATCHED,
                batch_latency=HALVES,
            ),
            run=_double,
        ),
        Operator(
            spec=OperatorSpec(
                name="shift",
                after=("double",),
                knobs=(Knob(name="by", values=(0, 1)),),
                scaling=Scaling.BATCHED,
                batch_latency=HALVES,
            ),
            run=_shift,
        ),
    ),
    score=lambda output, expected: float(output == expected),
    metric="part of the sums that are right",
    examples=_examples,
)
