"""An evaluator whose optimum is known: scores, seconds and bytes are formulas of the knobs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from circinus.pipelines.model.configuration import Configuration, ConfigurationSpace, IndexArray
from circinus.pipelines.model.graph import PipelineGraph
from circinus.pipelines.model.operators import Knob, OperatorSpec
from circinus.pipelines.model.profile import Failure, FloatArray, Profile
from circinus.planner.strategy.space import indices_of

Formula = Callable[[IndexArray], float]
"""Value of a configuration from the index of each knob's value, shape (knobs,)."""


def chain(*radices: int, name: str = "synthetic") -> PipelineGraph:
    """Return a chain of operators, one knob of `radix` values each; radix 0: no knob."""
    operators = []
    for i, radix in enumerate(radices):
        knobs = (Knob(name="k", values=tuple(range(radix))),) if radix else ()
        after = (f"o{i - 1}",) if i else ()
        operators.append(OperatorSpec(name=f"o{i}", after=after, knobs=knobs))
    return PipelineGraph(name=name, operators=tuple(operators))


@dataclass
class SyntheticEvaluator:
    """Measures formulas. Scores alternate around the accuracy with the given noise.

    Attributes:
        graph: The pipeline.
        accuracy: Mean score of a configuration.
        seconds: Operator seconds of a configuration, shared equally by the operators.
        population: Number of inputs.
        noise: Half the distance between the two scores that inputs get in turn.
        fails: Which configurations fail, by number.
        width: How many measurements it says that it makes at once.
        together: What was asked for at once: number of the configuration -> inputs.
    """

    graph: PipelineGraph
    accuracy: Formula
    seconds: Formula
    population: int = 60
    noise: float = 0.05
    fails: Callable[[int], bool] = lambda number: False
    spent_s: float = 0.0
    calls_s: float = 0.0
    calls_usd: float = 0.0
    measured: dict[int, int] = field(default_factory=dict)
    width: int = 1
    together: list[dict[int, int]] = field(default_factory=list)

    def measure_each(self, wanted: Sequence[tuple[Configuration, int]]) -> tuple[Profile, ...]:
        space = ConfigurationSpace(self.graph)
        self.together.append({space.number(configuration): n for configuration, n in wanted})
        return tuple(self.measure(configuration, inputs) for configuration, inputs in wanted)

    def measure(self, configuration: Configuration, inputs: int) -> Profile:
        space = ConfigurationSpace(self.graph)
        number = space.number(configuration)
        row = indices_of(space, [number])[0]
        before = self.measured.get(number, 0)
        n = self.measured[number] = max(before, inputs)
        operators = len(self.graph.operators)
        each = self.seconds(row) / operators
        self.spent_s += (n - before) * each * operators
        score: FloatArray = self.accuracy(row) + self.noise * np.where(np.arange(n) % 2, 1, -1)
        failed = self.fails(number)
        blank = np.nan if failed else 1.0
        return Profile(
            configuration=configuration,
            inputs=np.arange(n),
            score=np.clip(score, 0, 1) * blank,
            operator_s=np.full((operators, n), each) * blank,
            output_bytes=np.full((operators, n), 100.0) * blank,
            input_bytes=np.full(n, 1000.0),
            failures=(Failure(input=0, operator="o0", cause="made to fail"),) if failed else (),
            spent_s=n * each * operators,
        )


def additive(weights: list[list[float]]) -> Formula:
    """Return the formula that sums one weight per knob value."""
    return lambda row: float(sum(w[int(i)] for w, i in zip(weights, row, strict=True)))
