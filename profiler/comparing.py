"""Whether an operator answers equal inputs differently, though nobody declared that it draws.

Each operator is run twice on one input: where its first run with new settings is made twice
anyway, that tells at no cost and again with each settings; else, as with calls, one more run is
made of it, once. The one rule: no operator is run for this a second time.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from circinus.pipelines.graph import PipelineGraph
from circinus.pipelines.operators import Operator
from circinus.profiler.execution import Completed


@dataclass(slots=True)
class Comparisons:
    """What is known of the operators of one version of a pipeline. Threads may share it."""

    alike: set[str] = field(default_factory=set)  # operators that answered alike
    unlike: set[str] = field(default_factory=set)  # those that were seen to draw

    def needs_another(self, operator: Operator, done: Completed) -> bool:
        """Say whether it has to be run once more to know, after a run that gave this.

        That is asked for once only of an operator.
        """
        if operator.spec.draws or done.varies is not None:
            return False
        known = operator.name in self.alike or operator.name in self.unlike
        self.alike.add(operator.name)
        return not known

    def learn(self, operator: Operator, done: Completed) -> None:
        """Take in a run, which may have been compared with another one."""
        if done.varies is None or operator.spec.draws:
            return
        (self.unlike if done.varies else self.alike).add(operator.name)


def drawing_as(graph: PipelineGraph, names: set[str]) -> PipelineGraph:
    """Give the graph where these operators are declared to draw."""
    if all(operator.draws for operator in graph.operators if operator.name in names):
        return graph
    operators = (
        replace(operator, draws=operator.draws or operator.name in names)
        for operator in graph.operators
    )
    return replace(graph, operators=tuple(operators))
