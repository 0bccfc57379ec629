"""A pipeline whose requests take as long as they are large, without using the processor."""

from __future__ import annotations

import time

import numpy as np

from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.io.datasets import Dataset, Example
from circinus.pipelines.model.operators import Knob, Operator, OperatorSpec, Settings
from circinus.pipelines.model.payload import Payload
from circinus.pipelines.model.profile import IntArray
from tests.device_work import of_device

SECONDS = 0.01
"""Of a request of size 1 on a machine of speed 1."""


def size(input: Payload) -> float:
    """Return the size that a request says it has."""
    assert isinstance(input, dict)
    return float(str(input["size"]))


def small_sizes(count: int, rng: np.random.Generator) -> IntArray:  # (count,)
    """Return sizes of which most are small, of 1 to 16: what the pipeline is planned on."""
    return np.clip(np.rint(rng.lognormal(np.log(2.5), 0.6, count)), 1, 16).astype(np.int64)


def large_sizes(count: int, rng: np.random.Generator) -> IntArray:  # (count,)
    """Return sizes about 12."""
    return np.clip(np.rint(rng.normal(12, 2, count)), 1, 20).astype(np.int64)


def _wait(inputs: Payload, knobs: Settings) -> Payload:
    time.sleep(SECONDS * size(inputs) * int(knobs["rounds"]))
    return inputs


def _examples(count: int, seed: int) -> Dataset:
    sizes = small_sizes(count, np.random.default_rng(seed)).tolist()
    examples = [Example(input={"size": n}, expected={"size": n}) for n in sizes]
    return Dataset(name="sizes", examples=examples)


pipeline = Pipeline(
    name="sized",
    operators=(
        Operator(
            spec=of_device(OperatorSpec(name="wait", knobs=(Knob(name="rounds", values=(1,)),))),
            run=_wait,
        ),
    ),
    score=lambda output, expected: float(output == expected),
    metric="part of the sizes that came back",
    examples=_examples,
    request_size=size,
)
