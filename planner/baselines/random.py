"""Random search: what any strategy must beat."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from planner.space import candidates
from planner.strategy import Observation, Proposal, Ruled, Setting


@dataclass(frozen=True, slots=True)
class RandomFactory:
    """Makes `RandomSearch` strategies.

    Attributes:
        inputs: On how many inputs each configuration is measured; None: until the rule decides.
    """

    inputs: int | None = None

    def __call__(self, setting: Setting, rng: np.random.Generator) -> RandomSearch:
        """Give a strategy that has seen nothing."""
        numbers = candidates(setting.space, rng).numbers
        return RandomSearch([numbers[i] for i in rng.permutation(len(numbers))], self.inputs)


class RandomSearch(Ruled):
    """Proposes configurations in a given order, the last one first. A `Strategy`."""

    def __init__(self, left: list[int], inputs: int | None = None) -> None:
        self._left = left
        self._inputs = inputs

    def propose(self, under_way: Sequence[Proposal] = ()) -> Proposal | None:
        """Give the next one of the order."""
        busy = {proposal.number for proposal in under_way}
        left = next((number for number in reversed(self._left) if number not in busy), None)
        return None if left is None else Proposal(number=left, inputs=self._inputs)

    def observe(self, number: int, seen: Observation | None) -> None:
        """Forget the configuration; what it gave changes nothing."""
        if number in self._left:  # what is judged from memory may lie outside a drawn part
            self._left.remove(number)
