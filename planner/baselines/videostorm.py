"""VideoStorm (NSDI 2017) as Circinus compares with it: hill climbing on one utility.

From a random configuration it moves to the first neighbour (one knob changed) that is
better, and starts again elsewhere where there is none. Placements are computed from
every profile instead of climbed over, as everywhere in this planner.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from planner.baselines.utility import utility
from planner.space import candidates, neighbours
from planner.strategy import Observation, Proposal, Ruled, Setting


@dataclass(frozen=True, slots=True, kw_only=True)
class VideoStormFactory:
    """Makes `VideoStorm` strategies.

    Attributes:
        inputs: On how many inputs each configuration is measured; None: until the rule decides.
    """

    inputs: int | None = None

    def __call__(self, setting: Setting, rng: np.random.Generator) -> VideoStorm:
        """Give a strategy that has seen nothing."""
        return VideoStorm(setting, rng, self)


class VideoStorm(Ruled):
    """A `planner.strategy.Strategy`."""

    def __init__(
        self, setting: Setting, rng: np.random.Generator, settings: VideoStormFactory
    ) -> None:
        self._setting = setting
        self._rng = rng
        self._inputs = settings.inputs
        numbers = candidates(setting.space, rng).numbers
        self._starts = [numbers[i] for i in rng.permutation(len(numbers))]
        self._known: dict[int, float] = {}
        self._here: int | None = None
        self._round: list[int] = []

    def propose(self, under_way: Sequence[Proposal] = ()) -> Proposal | None:
        """Give the next neighbour, or a new start where all neighbours are known."""
        if under_way:
            return None
        while self._round:
            if self._round[-1] not in self._known:
                return Proposal(number=self._round[-1], inputs=self._inputs)
            self._round.pop()
        self._here = None
        while self._starts and self._starts[-1] in self._known:
            self._starts.pop()
        return Proposal(number=self._starts[-1], inputs=self._inputs) if self._starts else None

    def observe(self, number: int, seen: Observation | None) -> None:
        """Move when it is better than where the search stands."""
        gained = -np.inf if seen is None else utility(self._setting.slo, seen)
        self._known[number] = gained
        if seen is not None and (self._here is None or gained > self._known[self._here]):
            self._here = number
            near = neighbours(self._setting.space, number)
            self._round = [near[i] for i in self._rng.permutation(len(near))]
