"""Random and exhaustive search: all configurations in an order that nothing changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from circinus.planner.strategy.protocol import Observation, Proposal, Ruled, SearchSetting
from circinus.planner.strategy.space import candidates


@dataclass(frozen=True, slots=True)
class RandomFactory:
    """Makes strategies that measure configurations in a random order: what any other must beat."""

    inputs: int | None = None  # that each configuration meets; None: until the rule decides

    def __call__(self, setting: SearchSetting, rng: np.random.Generator) -> SearchInOrder:
        """Give a strategy that has seen nothing."""
        numbers = candidates(setting.space, rng).numbers
        return SearchInOrder([numbers[i] for i in rng.permutation(len(numbers))], self.inputs)


@dataclass(frozen=True, slots=True)
class ExhaustiveFactory:
    """Makes strategies that measure every configuration once, by number."""

    inputs: int | None = None  # that each configuration meets; None: until the rule decides

    def __call__(self, setting: SearchSetting, rng: np.random.Generator) -> SearchInOrder:
        """Give a strategy that has seen nothing."""
        return SearchInOrder(list(candidates(setting.space, rng).numbers)[::-1], self.inputs)


class SearchInOrder(Ruled):
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
