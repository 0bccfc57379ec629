"""A pipeline of one operator, whose calls are lines in the file that LOGGED_SUM_LOG names.

What was measured on an input is one call, whatever is cached. The examples of a seed are unlike
those of all others.
"""

from __future__ import annotations

import json
import os
import time

from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.io.datasets import Dataset, Example
from circinus.pipelines.model.operators import Knob, Operator, OperatorSpec, Settings
from circinus.pipelines.model.payload import Payload
from tests.device_work import of_device

TAKES_S = 0.004
SEEDS = 1000
"""More than the examples of one seed."""


def _sum(inputs: Payload, knobs: Settings) -> Payload:
    if not isinstance(inputs, dict) or not isinstance(value := inputs["value"], int):
        raise TypeError("an input is {value: number}")
    time.sleep(TAKES_S)
    with open(os.environ["LOGGED_SUM_LOG"], "a") as log:
        log.write(json.dumps([os.getpid(), value, knobs["effort"], knobs["by"]]) + "\n")
    wrong = value % (3 * int(knobs["effort"])) == 0
    return 2 * value + int(knobs["by"]) + wrong


def _examples(count: int, seed: int) -> Dataset:
    values = [seed * SEEDS + i for i in range(count)]
    examples = [Example(input={"value": v}, expected=2 * v + 1) for v in values]
    return Dataset(name="sums", examples=examples)


pipeline = Pipeline(
    name="logged-sum",
    operators=(
        Operator(
            spec=of_device(
                OperatorSpec(
                    name="sum",
                    knobs=(
                        Knob(name="effort", values=(1, 2, 3, 4)),
                        Knob(name="by", values=(0, 1)),
                    ),
                )
            ),
            run=_sum,
        ),
    ),
    score=lambda output, expected: float(output == expected),
    metric="part of the sums that are right",
    examples=_examples,
)
