"""Pipelines that stop a planning worker before it runs any operator."""

from __future__ import annotations

import ctypes
import time

from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.io.datasets import Dataset, Example
from circinus.pipelines.model.operators import Operator, OperatorSpec, Settings
from circinus.pipelines.model.payload import Payload


def _examples(count: int, seed: int) -> Dataset:
    return Dataset(name="one", examples=[Example(input=i, expected=i) for i in range(count)])


def _same(inputs: Payload, knobs: Settings) -> Payload:
    return inputs


def _sleeps() -> None:
    time.sleep(3600)


def _holds_the_interpreter() -> None:
    ctypes.PyDLL(None).sleep(3600)  # unlike CDLL it lets no other thread run


sleeping = Pipeline(
    name="sleeping",
    operators=(Operator(spec=OperatorSpec(name="same"), run=_same),),
    score=lambda output, expected: float(output == expected),
    examples=_examples,
    prepare=_sleeps,
)
holding = Pipeline(
    name="holding",
    operators=sleeping.operators,
    score=sleeping.score,
    examples=_examples,
    prepare=_holds_the_interpreter,
)
