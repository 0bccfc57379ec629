"""Repeated runs (draws) of an input, for pipelines that answer equal inputs differently.

Accuracy is then the expected score: the mean over all possible draws of an input, then over
inputs. The one rule: inputs weigh alike, and how many draws to make rests on pooled variances,
never on the scores of the input in question, so a mean over draws stays one.

| symbol | meaning |
| --- | --- |
| N, n | inputs there are, inputs met |
| d_i | draws met of input i |
| w, b | variance of scores within an input, and of expected scores between inputs |
| c_p, c_d | seconds of what all draws of an input share, and of what each runs anew |
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import replace
from math import isfinite, sqrt

import numpy as np

from circinus.pipelines import checks
from circinus.pipelines.model.configuration import Configuration
from circinus.pipelines.model.graph import PipelineGraph
from circinus.pipelines.model.profile import FloatArray, IntArray

MOST_DRAWS = 8
"""Draws of an input that are measured at most. Of 8, the noise of draws adds to the deviation of a
mean over N inputs what N / 8 further inputs would take away, if all of it were noise."""


def drawing_as(graph: PipelineGraph, names: Collection[str]) -> PipelineGraph:
    """Return the graph where these operators are declared to draw."""
    if all(operator.draws for operator in graph.operators if operator.name in names):
        return graph
    operators = (
        replace(operator, draws=operator.draws or operator.name in names)
        for operator in graph.operators
    )
    return replace(graph, operators=tuple(operators))


def measurable(graph: PipelineGraph, inputs: int) -> int:
    """Return how many measurements of a configuration there are at most: inputs times draws."""
    return inputs * MOST_DRAWS if graph.draws else inputs


def draws_of(inputs: IntArray) -> IntArray:  # (n,) -> (n,)
    """Return the number of each measurement among those of its input, from 0, in order."""
    by_input = np.argsort(inputs, kind="stable")
    ordered = inputs[by_input]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]]) if len(ordered) else ordered
    sizes = np.diff(np.r_[starts, len(ordered)])
    numbers = np.empty(len(inputs), dtype=np.int64)
    numbers[by_input] = np.arange(len(inputs)) - np.repeat(starts, sizes)
    return numbers


def means_of_inputs(inputs: IntArray, scores: FloatArray) -> FloatArray:  # (n,), (n,) -> (m,)
    """Return the mean over the draws of each input, in the order inputs were first met."""
    if not len(inputs):
        return np.zeros(0)
    _, first, which = np.unique(inputs, return_index=True, return_inverse=True)
    which = which.reshape(-1)
    means = np.bincount(which, weights=scores) / np.bincount(which)
    return np.asarray(means[np.argsort(first)])


def units_of(inputs: IntArray, scores: FloatArray) -> FloatArray:  # (n,), (n,) -> (units,)
    """Return the mean of each run of draws of one input that were made one after the other."""
    if not len(inputs):
        return np.zeros(0)
    starts = np.flatnonzero(np.r_[True, inputs[1:] != inputs[:-1]])
    return np.asarray(np.add.reduceat(scores, starts) / np.diff(np.r_[starts, len(inputs)]))


def draws_worth(shared_s: float, drawn_s: float, within: float, between: float) -> int:
    """Return how many draws to make of an input before the next, so that a mean is known soonest.

    n inputs of d draws have the variance (b + w / d) / n and cost n (c_p + c_d d): their product
    is least at d = sqrt(c_p w / (c_d b)) (Cochran, "Sampling Techniques", 1977, section 10.6).
    """
    ratio = shared_s * within / (drawn_s * between) if drawn_s * between > 0 else 0.0
    return int(min(max(round(sqrt(ratio)), 1), MOST_DRAWS)) if isfinite(ratio) else 1


class DrawOrder:
    """The (input, draw) pairs that all configurations meet, in the one order they meet them.

    Every input comes before any that was used up is drawn again. It grows on demand;
    what was drawn once stays. Where nothing draws it is the order of inputs.
    """

    def __init__(
        self,
        order: IntArray,  # (N,), each input once
        *,
        draws: bool,  # whether an operator draws
        most: int = MOST_DRAWS,  # draws of an input that there are, `>= 1`, where one draws
    ) -> None:
        self._order = order
        self._most = min(most, MOST_DRAWS) if draws else 1
        self._inputs = np.array(order)
        self._draws = np.zeros(len(order), dtype=np.int64)  # of the pairs, as `_inputs`
        self._length = 0 if draws else len(order)
        self._begun = 0  # inputs that were begun
        self._drawn = np.zeros(len(order), dtype=np.int64)  # draws of each, by place in the order
        if draws:
            self._inputs, self._draws = np.empty((2, self.size), dtype=np.int64)

    @property
    def size(self) -> int:
        """How many pairs there are."""
        return len(self._order) * self._most

    def grow(self, n: int, draws: int) -> None:
        """Have at least the first n pairs, making so many draws of each input that is begun."""
        while self._length < min(n, self.size):
            if self._begun < len(self._order):
                at, times = self._begun, draws
                self._begun += 1
            else:
                at, times = int(np.argmin(self._drawn)), 1
            times = min(times, self._most)
            new = slice(self._length, self._length + times)
            self._inputs[new], first = self._order[at], self._drawn[at]
            self._draws[new] = np.arange(first, first + times)
            self._drawn[at] += times
            self._length += times

    def drawing(self, n: int) -> DrawOrder:
        """Return the order of a stochastic pipeline: the first n inputs were met once so far."""
        order = DrawOrder(self._order, draws=True)
        order.grow(n, 1)
        return order

    def pairs(self, start: int, stop: int) -> list[tuple[int, int]]:
        """Return those from the `start`-th to before the `stop`-th; it must have grown so far."""
        rule = f"must be in [0, {self._length}]"
        checks.require(0 <= start <= stop <= self._length, "pairs", rule, (start, stop))
        made = slice(start, stop)
        return list(zip(self._inputs[made].tolist(), self._draws[made].tolist(), strict=True))


_PRIOR_WITHIN, _PRIOR_WEIGHT = 0.5, 4.0
"""Part of the variance that draws of one input make up before any was repeated, in repeats."""
_LEAST_BETWEEN = 0.01  # of the variance: no repeats prove that inputs are all alike


class _Sum:
    """Number, sum and sum of squares of scores."""

    __slots__ = ("n", "squares", "total")

    def __init__(self) -> None:
        self.n, self.total, self.squares = 0, 0.0, 0.0

    def add(self, score: float) -> float:
        """Record a score, and return what it adds to the sum of squared deviations."""
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
        """Record a measurement; one that failed has no bearing and must not be passed."""
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
        squares = _PRIOR_WITHIN * _PRIOR_WEIGHT * variance + self._squares
        within = squares / (_PRIOR_WEIGHT + self._repeats)
        between = max(variance - within, _LEAST_BETWEEN * variance)
        return draws_worth(self._shared_s, self._drawn_s, within, between)
