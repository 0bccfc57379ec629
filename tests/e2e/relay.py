"""A pipeline of two operators that say in which process they ran."""

from __future__ import annotations

import os

from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.io.datasets import Dataset, Example
from circinus.pipelines.model.operators import Knob, Operator, OperatorSpec, Settings
from circinus.pipelines.model.payload import Payload

WORDS = ("$once", "${twice}")


def _say(inputs: Payload, knobs: Settings) -> Payload:
    return {"said": [str(inputs), str(knobs["word"])], "by": [os.getpid()]}


def _pass_on(inputs: Payload, knobs: Settings) -> Payload:
    assert isinstance(inputs, dict)
    assert isinstance(inputs["by"], list)
    return {**inputs, "by": [*inputs["by"], os.getpid()]}


def _score(output: Payload, expected: Payload) -> float:
    assert isinstance(output, dict)
    assert isinstance(output["said"], list)
    return float(output["said"][1] == expected)


pipeline = Pipeline(
    name="relay",
    operators=(
        Operator(
            spec=OperatorSpec(name="say", knobs=(Knob(name="word", values=WORDS),)), run=_say
        ),
        Operator(spec=OperatorSpec(name="pass_on", after=("say",)), run=_pass_on),
    ),
    score=_score,
    examples=lambda count, seed: Dataset(
        name="words", examples=[Example(input=i, expected=WORDS[1]) for i in range(count)]
    ),
)
