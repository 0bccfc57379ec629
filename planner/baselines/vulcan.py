"""Vulcan (NSDI 2024) as Circinus compares with it: Bayesian optimisation of one utility.

One Gaussian process on one-hot knobs predicts the utility; the next configuration has
the largest expected improvement. Placements are computed from every profile instead of
searched, as everywhere in this planner: a stronger competitor than the published one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.special import ndtr

from pipelines import checks
from planner.baselines.utility import utility
from planner.space import candidates, spread
from planner.strategy import Observation, Proposal, Ruled, Setting
from planner.surrogate import Surrogate, SurrogateSettings, fit

_REFIT_GROWTH = 1.25


@dataclass(frozen=True, slots=True, kw_only=True)
class VulcanFactory:
    """Makes `Vulcan` strategies.

    Attributes:
        inputs: On how many inputs each configuration is measured; None: until the rule decides.
        initial: Size of the space-filling design before the model is asked, `>= 2`.
        surrogate: How the model learns.
    """

    inputs: int | None = None
    initial: int = 5
    surrogate: SurrogateSettings = field(default_factory=SurrogateSettings)

    def __post_init__(self) -> None:
        checks.require(self.initial >= 2, "vulcan.initial", "must be >= 2", self.initial)

    def __call__(self, setting: Setting, rng: np.random.Generator) -> Vulcan:
        """Give a strategy that has seen nothing."""
        return Vulcan(setting, rng, self)


class Vulcan(Ruled):
    """A `planner.strategy.Strategy`."""

    def __init__(
        self, setting: Setting, rng: np.random.Generator, settings: VulcanFactory
    ) -> None:
        self._slo = setting.slo
        self._settings = settings
        self._pool = candidates(setting.space, rng)
        self._position = {number: i for i, number in enumerate(self._pool.numbers)}
        self._open = np.ones(len(self._pool.numbers), dtype=np.bool_)
        self._order = spread(self._pool, settings.initial, rng)
        self._order += [int(i) for i in rng.permutation(len(self._pool.numbers))]
        self._rows: list[int] = []
        self._utilities: list[float] = []
        self._model: Surrogate | None = None
        self._refit_at = 0

    def propose(self, under_way: Sequence[Proposal] = ()) -> Proposal | None:
        """Give the design, then the configuration with the largest expected improvement."""
        if under_way or not self._open.any():
            return None
        if len(self._rows) < self._settings.initial:
            row = next(row for row in self._order if self._open[row])
        else:
            row = self._most_improving()
        return Proposal(number=self._pool.numbers[row], inputs=self._settings.inputs)

    def observe(self, number: int, seen: Observation | None) -> None:
        """Take in a measurement; a failed one only ends the configuration's candidacy."""
        row = self._position[number]
        self._open[row] = False
        if seen is not None:
            self._rows.append(row)
            self._utilities.append(utility(self._slo, seen))

    def _most_improving(self) -> int:
        settings = self._settings.surrogate
        if len(self._rows) < self._refit_at:
            settings = replace(settings, warm_steps=0)
        else:
            self._refit_at = int(_REFIT_GROWTH * len(self._rows)) + 1
        y = np.array(self._utilities)[:, None]
        self._model = fit(self._pool.encoded[self._rows], y, warm=self._model, settings=settings)
        rows = np.flatnonzero(self._open)
        seen = self._model.predict(self._pool.encoded[rows])
        deviation = np.maximum(seen.deviation[:, 0], 1e-9)
        z = (seen.mean[:, 0] - max(self._utilities)) / deviation
        density = np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi)
        return int(rows[np.argmax(deviation * (z * ndtr(z) + density))])
