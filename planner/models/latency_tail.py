"""How much operators' seconds vary over inputs, pooled over all that was measured.

A few inputs of one configuration seldom show the rare slow ones: their mean is then too
low, their own spread makes it look well known, and of many configurations the luckiest
is chosen. So a mean is predicted from two sides: from the inputs' own mean, which is
right in the long run, and from their median times how far means lie above medians
everywhere. Each counts by its precision: where nothing is slow now and then the two agree.

| symbol | meaning |
| --- | --- |
| cell | an operator under one setting of its lineage: its seconds are one sample |
| n, N | inputs a cell has met, inputs there are |
| r | seconds over the median of their cell |
| k, q2 | mean and variance of r of an operator, pooled over its cells |
| b2 | variance of r's body: what a median's error depends on |
| M | inputs behind k |
| g | total seconds of the scout over their mean: the configuration that met most inputs |

Some slowness is the input's or the moment's and meets all configurations alike: then the
cells of a few quiet inputs are many and know nothing. The configuration that met most
inputs, the scout, informs (double sampling, the regression estimator): a mean moves by beta
times what the scout's own moved, beta learnt from the common inputs, drawn towards 1.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from circinus.pipelines.model.configuration import Configuration
from circinus.pipelines.model.graph import PipelineGraph
from circinus.pipelines.model.latency import TierArray, Work, speeds_at
from circinus.pipelines.model.profile import FloatArray
from circinus.pipelines.model.query import PlanningContext

_FEWEST = 4  # inputs of a cell whose median is informative
_ALL_WEIGHT = 40.0  # inputs that the pool of all operators counts as in one operator's pool
_MEDIAN = 1.57  # variance of a median over that of a mean, of normal bodies
_QUARTILES = 1.349  # distance of the quartiles of a normal, in deviations
_SHORTEST_S = 1e-12
_COMMON_VARIANCE, _COMMON_WEIGHT = 0.3, 16.0
"""Variance of g before anything is known, in inputs."""
_RIDGE = 0.01  # per input: of g's variance that shows no more than that beta is 1
_STEEPEST = 1.5  # beta
_SLOW = 20.0
"""r from which a run is slow: nothing about the input, something about the machine. Of five
pipelines on a quiet machine all were within 14."""


class Means(NamedTuple):
    """Mean seconds of each operator over all N inputs, as well as they are known, shape (O,)."""

    mean: FloatArray
    variance: FloatArray  # of that


class _Pool(NamedTuple):
    mean: float
    variance: float
    body: float
    inputs: float


_PRIOR = _Pool(mean=1.1, variance=0.5, body=0.15, inputs=20.0)
"""Before any measurement. So few inputs showed no spike: there may be some."""


class LatencyTail:
    """r of every operator, from the latest work of each cell."""

    def __init__(self) -> None:
        self._cells: list[dict[Hashable, FloatArray]] = []
        self._runs: list[dict[Hashable, tuple[int, float, int]]] = []  # inputs, seconds, slow ones
        self._pools: list[_Pool] | None = None
        self._scout = np.zeros(0)

    def add(self, cells: Sequence[Hashable], work: Work) -> None:
        """Add work, in place of what was known of each operator's cell on fewer inputs."""
        if not self._cells:
            self._cells = [{} for _ in cells]
            self._runs = [{} for _ in cells]
        total = work.operator_s.sum(axis=0)
        if len(total) >= len(self._scout):
            self._scout = total
        for known, runs, cell, seconds in zip(
            self._cells, self._runs, cells, work.operator_s, strict=True
        ):
            n = len(seconds)
            if cell in runs and n <= runs[cell][0]:
                continue
            r = seconds / max(float(np.median(seconds)), _SHORTEST_S)
            slow = int((r >= _SLOW).sum()) if n >= _FEWEST else 0
            runs[cell] = n, float(seconds.sum()), slow
            if n >= _FEWEST:
                known[cell] = _summary(seconds)
                self._pools = None

    def means(self, work: Work, population: int) -> Means:
        """Return the mean seconds of operators over all N inputs, of which n were measured."""
        seconds = work.operator_s
        n = seconds.shape[1]
        left = 1 - min(n / population, 1.0)
        own = np.maximum(seconds.mean(axis=1), _SHORTEST_S)
        middle = np.maximum(np.median(seconds, axis=1), _SHORTEST_S)
        mean, variance, body, inputs = np.array(self.pools(len(seconds))).T
        by_own = n / variance
        by_median = 1 / (_MEDIAN * body * mean**2 / n + variance / inputs)
        rest = (by_own * own + by_median * middle * mean) / (by_own + by_median)
        # The two rest on the same inputs: their errors are added as if they were one.
        error = (np.sqrt(by_own) + np.sqrt(by_median)) / (by_own + by_median)
        spread = middle**2 * (variance / max(population * left, 1.0) + error**2)
        return Means(mean=(1 - left) * own + left * rest, variance=left**2 * spread)

    def pools(self, operators: int) -> list[_Pool]:
        """Return k, q2, b2 and M of each operator."""
        if not self._cells:
            return [_pooled([], _PRIOR)] * operators
        if self._pools is None:
            everything = _pooled([s for known in self._cells for s in known.values()], _PRIOR)
            start = everything._replace(inputs=min(everything.inputs, _ALL_WEIGHT))
            self._pools = [_pooled(list(known.values()), start) for known in self._cells]
        return self._pools

    def interval(
        self, context: PlanningContext, tiers: TierArray, work: Work, population: int, sure: float
    ) -> tuple[float, float]:
        """Return the ends, that sure, of a mean latency's interval over the measured mean.

        Of the observed runs, see `slow_chance`; arguments are those of `upper_ratio`.
        """
        z = float(ndtri((1 + sure) / 2))
        low, high = (
            self.upper_ratio(context, tiers, work, population, z=side) for side in (-z, z)
        )
        return min(low, 1.0), max(high, 1.0)

    def slow_chance(self, work: Work, population: int) -> float:
        """Return about the chance that a run of a configuration that was not measured is slow.

        No bound on a mean holds without one on unobserved runs. Slow runs have a rate, per run or
        per second of running, whichever predicts more. The rate counts half a slow run besides
        the observed ones (the mean under Jeffreys' prior of a Poisson rate). The work has to be
        of a configuration that was taken in.
        """
        left = population - work.operator_s.shape[1]
        left_s = left * float(work.operator_s.mean(axis=1).sum())
        runs = [run for known in self._runs for run in known.values()]
        met, met_s, slow = np.sum(runs or [(0, 0.0, 0)], axis=0)
        exposed = max(left * len(work.operator_s) / max(met, 1), left_s / max(met_s, _SHORTEST_S))
        return min(float((slow + 0.5) * exposed), 1.0)

    def upper_ratio(
        self,
        context: PlanningContext,  # where it runs
        tiers: TierArray,  # position of each operator's tier, shape (O,)
        work: Work,  # of n inputs of the population, without replacement
        population: int,  # N >= n
        z: float,  # deviations above what is expected, of a log-normal; below where negative
    ) -> float:
        """Return how far a deployment's mean latency at full shares may exceed the measured one.

        The operators' deviations are taken as independent; on a DAG all count, as if on the path.
        """
        factor = speeds_at(context.graph, context.infrastructure, tiers[None, :])[0]
        speed = 1 / (work.waiting + (1 - work.waiting) / factor)
        means = self.means(work, population)
        own = float((work.operator_s.mean(axis=1) / speed).sum())
        mean = float((means.mean / speed).sum())
        if own <= 0 or mean <= 0:
            return 1.0
        moved, common = self._moved((work.operator_s.T / speed).sum(axis=1), population)
        relative = float((means.variance / speed**2).sum()) / mean**2 + common
        deviation = np.sqrt(np.log1p(relative))
        return float(mean / own * moved * np.exp(z * deviation - deviation**2 / 2))

    def _moved(self, total: FloatArray, population: int) -> tuple[float, float]:  # (n,)
        """Return what the scout's further inputs multiply a mean by, and the relative variance."""
        n, scouted = len(total), max(len(self._scout), len(total))
        scout = self._scout if len(self._scout) >= n else total
        g = scout / max(float(scout.mean()), _SHORTEST_S)
        variance = float(np.square(g - 1).sum()) + _COMMON_WEIGHT * _COMMON_VARIANCE
        variance /= _COMMON_WEIGHT + scouted
        common = g[:n] / max(float(g[:n].mean()), _SHORTEST_S) - 1
        own = total / max(float(total.mean()), _SHORTEST_S) - 1
        ridge = _RIDGE * n
        beta = (float(common @ own) + ridge) / (float(common @ common) + ridge)
        beta = min(max(beta, 0.0), _STEEPEST)
        left = max(1 / scouted - 1 / population, 0.0)
        moved = 1 + beta * (1 / max(float(g[:n].mean()), _SHORTEST_S) - 1)
        return max(moved, 0.1), beta**2 * variance * left


def lineage_cells(graph: PipelineGraph, configuration: Configuration) -> tuple[Hashable, ...]:
    """Return the cell of each operator under a configuration."""
    values = configuration.values  # in the order of the graph's slots
    return tuple(tuple(values[k] for k in upstream) for upstream in graph.upstream_knobs)


def _summary(seconds: FloatArray) -> FloatArray:  # (n,) -> (n, sum of r, of r^2, body variance)
    ordered = np.sort(seconds)
    places = np.array([0.25, 0.5, 0.75]) * (len(ordered) - 1)
    low, middle, high = np.interp(places, np.arange(len(ordered)), ordered)
    middle = max(middle, _SHORTEST_S)
    ratio = seconds / middle
    body = ((high - low) / middle / _QUARTILES) ** 2
    return np.array([len(ratio), ratio.sum(), np.square(ratio).sum(), body])


def _pooled(cells: Sequence[FloatArray], start: _Pool) -> _Pool:
    weight, total = start.inputs, start.inputs * start.mean
    square = start.inputs * (start.variance + start.mean**2)
    body = start.inputs * start.body
    for n, ratios, squares, own_body in cells:
        weight, total, square = weight + n, total + ratios, square + squares
        body += n * own_body
    mean = total / weight
    return _Pool(mean, max(square / weight - mean**2, 1e-6), max(body / weight, 1e-6), weight)
