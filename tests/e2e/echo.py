"""A pipeline for tests that takes whatever a request brings, and gives it back at once."""

from __future__ import annotations

from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.io.datasets import Dataset, Example
from circinus.pipelines.model.operators import Knob, Operator, OperatorSpec


def _pipeline(name: str, *, fails: bool) -> Pipeline:
    def run(inputs: object, knobs: object) -> object:
        if fails:
            raise ValueError("it never works")
        return inputs

    spec = OperatorSpec(name="repeat", knobs=(Knob(name="loudly", values=(False, True)),))
    return Pipeline(
        name=name,
        operators=(Operator(spec=spec, run=run),),  # type: ignore[arg-type]  # of any payload
        score=lambda output, expected: float(output == expected),
        examples=lambda count, seed: Dataset(
            name="numbers",
            examples=[Example(input=[seed, i], expected=[seed, i]) for i in range(count)],
        ),
    )


pipeline = _pipeline("echo", fails=False)
failing = _pipeline("mute", fails=True)
EXTRA = "tests.e2e.echo:pipeline,tests.e2e.echo:failing"
