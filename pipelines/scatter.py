"""How scores scatter between inputs and between draws of one, and what either costs.

It says how many draws to make of an input before the next one is begun, see
`pipelines.draws.draws_worth`. The one rule: it rests on pooled figures of all that was measured,
never on the scores of the input in question, so a mean over draws stays one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from circinus.pipelines.configuration import Configuration
from circinus.pipelines.draws import draws_worth
from circinus.pipelines.graph import PipelineGraph

_PRIOR_WITHIN, _PRIOR_WEIGHT = 0.5, 4.0
"""Part of the variance that draws of one input make up before any was repeated, in repeats."""
_LEAST_BETWEEN = 0.01  # of the variance: no repeats prove that inputs are all alike


class _Sum:
    """Number, sum and sum of squares of scores."""

    __slots__ = ("n", "squares", "total")

    def __init__(self) -> None:
        self.n, self.total, self.squares = 0, 0.0, 0.0

    def add(self, score: float) -> float:
        """Take in a score, and give what it adds to the sum of squared deviations."""
        before = self.deviations
        self.n, self.total = self.n + 1, self.total + score
        self.squares += score * score
        return self.deviations - before

    @property
    def deviations(self) -> float:
        """Sum of squared deviations from the mean."""
        return max(self.squares - self.total**2 / self.n, 0.0) if self.n else 0.0


class Scatter:
    """Learns from every measurement of a pipeline."""

    def __init__(self, graph: PipelineGraph) -> None:
        self._drawing = graph.drawing
        self._draws = graph.draws
        self._shared_s = self._drawn_s = 0.0
        self._squares = self._repeats = 0.0  # within inputs
        self._first: defaultdict[Configuration, _Sum] = defaultdict(_Sum)  # of first draws
        self._each: defaultdict[tuple[Configuration, int], _Sum] = defaultdict(_Sum)

    def add(
        self,
        configuration: Configuration,
        pair: tuple[int, int],  # the input, and which draw of it
        score: float,
        operator_s: Sequence[float],  # of each operator, reused outputs as when they were made
    ) -> None:
        """Take in a measurement; one that failed says nothing and is not to be told."""
        if not self._draws:
            return
        index, draw = pair
        for draws, seconds in zip(self._drawing, operator_s, strict=True):
            if draws:
                self._drawn_s += seconds
            else:
                self._shared_s += seconds
        if draw == 0:
            self._first[configuration].add(score)
        one = self._each[configuration, index]
        self._squares += one.add(score)
        self._repeats += one.n > 1

    @property
    def draws_worth(self) -> int:
        """How many draws to make of the next input, `>= 1`."""
        met = sum(one.n - 1 for one in self._first.values())
        if met < 1:
            return 1
        variance = sum(one.deviations for one in self._first.values()) / met
        told = _PRIOR_WITHIN * _PRIOR_WEIGHT * variance + self._squares
        within = told / (_PRIOR_WEIGHT + self._repeats)
        between = max(variance - within, _LEAST_BETWEEN * variance)
        return draws_worth(self._shared_s, self._drawn_s, within, between)
