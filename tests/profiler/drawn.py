"""Pipelines and data drawn at random, and when two profiles of them are the same."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b

import numpy as np
from hypothesis import strategies as st

from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.io.datasets import Dataset, Example
from circinus.pipelines.model.operators import Knob, Operator, OperatorFunction, Settings
from circinus.pipelines.model.payload import Payload, content_hash
from circinus.pipelines.model.profile import Profile
from tests.profiler.synthetic import Bench

SHAPES = ("array", "list", "dict", "text", "number")


def digest(*parts: object) -> int:
    return int.from_bytes(blake2b(repr(parts).encode(), digest_size=4).digest(), "big")


def mixing(name: str, *, fails_in: int = 0) -> OperatorFunction:
    """Return a function whose output, in a form of its own, depends on all that it may depend on.

    One output in `fails_in` is an error instead, 0: none.
    """

    def run(inputs: Payload, settings: Settings) -> Payload:
        number = digest(name, sorted(settings.items()), content_hash(inputs))
        if fails_in and number % fails_in == 0:
            raise RuntimeError("broke")
        forms: dict[str, Payload] = {
            "array": np.array([number, 1]),
            "list": [number, [np.array([number])]],
            "dict": {"number": number, "more": ["x"]},
            "text": str(number),
            "number": number,
        }
        return forms[SHAPES[digest(name) % len(SHAPES)]]

    return run


def constant(seconds: float) -> Callable[[int], float]:
    """Dyadic seconds, please: differences of clock readings are then exact."""
    return lambda call: seconds


@st.composite
def dags(draw: st.DrawFn, *, fails_in: int = 0) -> tuple[Bench, Pipeline]:
    """Draw a random DAG of up to five operators with up to two knobs each, see `mixing`."""
    bench = Bench()
    operators: list[Operator] = []
    for position in range(draw(st.integers(1, 5))):
        above = [operator.name for operator in operators]
        after = tuple(draw(st.lists(st.sampled_from(above), unique=True))) if above else ()
        knobs = tuple(
            Knob(name=knob, values=(True, 2, "three")[: draw(st.integers(1, 3))])
            for knob in draw(st.permutations(("u", "v")))[: draw(st.integers(0, 2))]
        )
        name = f"op{position}"
        operators.append(
            bench.operator(
                name,
                mixing(name, fails_in=fails_in),
                after=after,
                knobs=knobs,
                seconds=constant((1 + position) / 8),
            )
        )
    pipeline = Pipeline(
        name="dag",
        operators=tuple(draw(st.permutations(operators))),
        score=lambda output, expected: digest(content_hash(output), expected) / 2**32,
    )
    return bench, pipeline


def integers(count: int) -> Dataset:
    """Return 1, 1, 2, 3, ...: two inputs alike, whose entries are shared."""
    examples = [Example(input=max(i, 1), expected=i) for i in range(count)]
    return Dataset(name="integers", examples=examples)


def same(one: Profile, other: Profile) -> bool:
    """Return whether two profiles say the same, whoever paid."""
    return all(
        np.array_equal(getattr(one, name), getattr(other, name), equal_nan=True)
        for name in ("inputs", "score", "operator_s", "output_bytes", "input_bytes")
    )
