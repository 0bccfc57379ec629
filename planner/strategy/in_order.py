"""Random and exhaustive search: all configurations in an order that nothing changes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from circinus.planner.strategy.protocol import Measured, Proposal, Ruled, SearchSetting
from circinus.planner.strategy.space import candidates


def random_search(
    setting: SearchSetting, rng: np.random.Generator, inputs: int | None = None
) -> SearchInOrder:
    """Return what measures configurations in a random order: what any other strategy must beat."""
    numbers = candidates(setting.space, rng).numbers
    return SearchInOrder([numbers[i] for i in rng.permutation(len(numbers))], inputs)


def exhaustive_search(
    setting: SearchSetting, rng: np.random.Generator, inputs: int | None = None
) -> SearchInOrder:
    """Return what measures every configuration once, by number."""
    return SearchInOrder(list(candidates(setting.space, rng).numbers)[::-1], inputs)


class SearchInOrder(Ruled):
    """Proposes configurations in a given order, the last one first. A `Strategy`.

    Each is to meet so many `inputs`; None: until the stopping rule decides.
    """

    def __init__(self, left: list[int], inputs: int | None = None) -> None:
        self._left = left
        self._inputs = inputs

    def propose(self, under_way: Sequence[Proposal] = ()) -> Proposal | None:
        """Return the next one of the order."""
        busy = {proposal.number for proposal in under_way}
        left = next((number for number in reversed(self._left) if number not in busy), None)
        return None if left is None else Proposal(number=left, inputs=self._inputs)

    def observe(self, number: int, measured: Measured | None) -> None:
        """Forget the configuration; what it gave changes nothing."""
        if number in self._left:  # what is judged from memory may lie outside a drawn part
            self._left.remove(number)
