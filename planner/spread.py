"""How much operators' seconds vary over inputs, pooled over configurations.

A few inputs of one configuration seldom show the rare slow ones: their own spread says
that the mean is well known when it is not. All configurations together have met more.

| symbol | meaning |
| --- | --- |
| cv_o | deviation over mean of operator o's seconds over inputs |
"""

from __future__ import annotations

import numpy as np

from pipelines.latency import TierArray, Work, speeds_at
from pipelines.profile import FloatArray
from planner.prediction import Scene


class PooledSpread:
    """cv of every operator, from the latest work of each configuration."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[FloatArray, int]] = {}

    def add(self, number: int, work: Work) -> None:
        """Take in the work of a configuration, replacing what was known of it."""
        n = work.operator_s.shape[1]
        if n >= 2:
            mean = np.maximum(work.operator_s.mean(axis=1), 1e-12)
            self._seen[number] = (work.operator_s.var(axis=1, ddof=1) / mean**2, n - 1)

    def variance(self, operators: int) -> FloatArray:  # (O,)
        """Give cv_o squared; zeros before anything is known."""
        if not self._seen:
            return np.zeros(operators)
        relative = np.stack([seen for seen, _ in self._seen.values()])
        weight = np.array([n for _, n in self._seen.values()], dtype=float)
        return np.asarray(weight @ relative / weight.sum())

    def error_s(self, scene: Scene, tiers: TierArray, work: Work, population: int) -> float:
        """Give the standard error of the mean latency of a deployment at full shares.

        Operators' deviations are taken as independent; on a DAG all count, as if on the path.

        Args:
            scene: Where it runs.
            tiers: Position of each operator's tier, shape (O,).
            work: Of n inputs of the population, without replacement.
            population: N >= n.
        """
        speed = speeds_at(scene.graph, scene.infrastructure, tiers[None, :])[0]
        mean = work.operator_s.mean(axis=1) / speed
        n = work.operator_s.shape[1]
        left = max(population - n, 0) / max(population - 1, 1)
        return float(np.sqrt((mean**2 * self.variance(len(mean))).sum() / n * left))
