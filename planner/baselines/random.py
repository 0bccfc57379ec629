"""Random search: what any strategy must beat."""

from __future__ import annotations

import numpy as np

from pipelines.configuration import ConfigurationSpace
from pipelines.slo import Slo
from planner.space import candidates
from planner.strategy import Observation, Proposal


class RandomSearch:
    """Proposes configurations in random order. A `planner.strategy.Strategy`."""

    def __init__(self, space: ConfigurationSpace, slo: Slo, rng: np.random.Generator) -> None:
        _ = slo  # what is asked for does not guide it
        numbers = candidates(space, rng).numbers
        self._left = [numbers[i] for i in rng.permutation(len(numbers))]

    def propose(self) -> Proposal | None:
        """Give the next one of the random order."""
        return Proposal(number=self._left[-1]) if self._left else None

    def observe(self, number: int, seen: Observation | None) -> None:
        """Forget the configuration; what it gave changes nothing."""
        _ = seen
        self._left.remove(number)
