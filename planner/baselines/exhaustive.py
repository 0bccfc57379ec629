"""Exhaustive search: everything, in order of number."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.baselines.random import RandomSearch
from planner.space import candidates
from planner.strategy import Setting


@dataclass(frozen=True, slots=True)
class ExhaustiveFactory:
    """Makes strategies that measure every configuration once, by number.

    Attributes:
        inputs: On how many inputs each is measured; None: until the rule decides.
    """

    inputs: int | None = None

    def __call__(self, setting: Setting, rng: np.random.Generator) -> RandomSearch:
        """Give a strategy that has seen nothing."""
        return RandomSearch(list(candidates(setting.space, rng).numbers)[::-1], self.inputs)
