"""A pipeline of 2,016 configurations that cost next to nothing, to time what is around."""

from __future__ import annotations

from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.io.datasets import Dataset, Example
from circinus.pipelines.model.operators import Knob, Operator, OperatorSpec, Settings
from circinus.pipelines.model.payload import Payload

_KNOBS = {"first": (7, 6), "second": (6,), "third": (8,)}  # operator -> values of its knobs
CONFIGURATIONS = 7 * 6 * 6 * 8
_MOST = sum(size - 1 for sizes in _KNOBS.values() for size in sizes)


def _work(inputs: Payload, knobs: Settings) -> Payload:
    assert isinstance(inputs, list)
    number, effort = inputs
    assert isinstance(number, int)
    assert isinstance(effort, int)
    level = sum(int(value) for value in knobs.values())
    sum(range(500 * (1 + level)))
    return [number, effort + level]


def _score(output: Payload, expected: Payload) -> float:
    assert isinstance(output, list)
    effort = output[1]
    assert isinstance(effort, int)
    return effort / _MOST  # 1 by the last configuration only: a search in order measures all


def _operators() -> tuple[Operator, ...]:
    made: list[Operator] = []
    for name, sizes in _KNOBS.items():
        knobs = tuple(Knob(name=f"k{i}", values=(*range(n),)) for i, n in enumerate(sizes))
        after = (made[-1].spec.name,) if made else ()
        made.append(Operator(spec=OperatorSpec(name=name, after=after, knobs=knobs), run=_work))
    return tuple(made)


def _examples(count: int, seed: int) -> Dataset:
    pairs = [Example(input=[seed * 1000 + i, 0], expected=None) for i in range(count)]
    return Dataset(name="grid", examples=pairs)


pipeline = Pipeline(name="grid", operators=_operators(), score=_score, examples=_examples)
