"""A model on unlike hardware, for routes: `tests.deploy.routed_pipelines:doubled`."""

from __future__ import annotations

import threading

from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.io.datasets import Dataset, Example
from circinus.pipelines.model.operators import Knob, Operator, OperatorSpec, Settings
from circinus.pipelines.model.payload import Payload

TAKES_S = {"quick": 0.01, "slow": 0.03, "faulty": 0.01, "broken": 0.0}


def _double(inputs: Payload, knobs: Settings) -> Payload:
    assert isinstance(inputs, int | float)
    threading.Event().wait(TAKES_S[str(knobs["hardware"])])
    if knobs["hardware"] == "broken":
        raise ValueError("no such device")
    # what a faulty kernel gives for some inputs
    return 0 if knobs["hardware"] == "faulty" and inputs > 4 else inputs * 2


def _same(output: Payload, expected: Payload) -> float:
    return float(output == expected)


def _examples(count: int, seed: int) -> Dataset:
    examples = [Example(input=i, expected=2 * i) for i in range(1, count + 1)]
    return Dataset(name="numbers", examples=examples)


doubled = Pipeline(
    name="doubled",
    operators=(
        Operator(
            spec=OperatorSpec(
                name="double", knobs=(Knob(name="hardware", values=tuple(TAKES_S)),)
            ),
            run=_double,
        ),
    ),
    score=_same,
    examples=_examples,
)
