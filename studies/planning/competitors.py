"""Vulcan and VideoStorm, as Circinus compares with them: both search by one utility.

Placements are computed from every profile instead of searched or climbed over, as everywhere in
this planner: stronger competitors than the published ones. Both are `StrategyFactory`s: called
with a setting and a generator, they are the strategy of one search.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy.special import ndtr

from circinus.pipelines.slo import Slo
from circinus.planner.strategy.protocol import Observation, Proposal, Ruled, SearchSetting
from circinus.planner.strategy.space import candidates, neighbours, spread
from circinus.planner.strategy.surrogate import Surrogate, SurrogateSettings, fit

ACCURACY_WEIGHT = 2.0
"""alpha: relative shortfalls of accuracy are smaller than those of latency."""
_BONUS = 0.1
_DESIGN = 5  # configurations, space-filling, before Vulcan's model is asked
_REFIT_GROWTH = 1.25


def utility(slo: Slo, seen: Observation) -> float:
    """Give the utility: at least 0 when both SLOs hold, below -0.9 at worst twice the latency.

    Circinus 4.2 writes it as |latency - target| + alpha |accuracy - target|, less being better.
    Taken literally that punishes being better than asked; here only shortfalls count, and a tenth
    of the spare latency breaks ties towards cheap configurations: both in the competitors' favour.
    """
    short = max(slo.accuracy - seen.accuracy, 0.0) / max(slo.accuracy, 1e-9)
    late = min(max(seen.latency_s / slo.latency_s - 1, 0.0), 10.0)
    spare = max(1 - seen.latency_s / slo.latency_s, 0.0)
    return _BONUS * spare - ACCURACY_WEIGHT * short - late


class Vulcan(Ruled):
    """Vulcan (NSDI 2024): Bayesian optimisation of the utility. A `Strategy`.

    One Gaussian process on one-hot knobs predicts the utility; the next configuration has the
    largest expected improvement.
    """

    def __init__(
        self, setting: SearchSetting, rng: np.random.Generator, *, inputs: int | None = None
    ) -> None:
        """Take on how many inputs each is measured; None: until the search's rule decides."""
        self._slo = setting.slo
        self._inputs = inputs
        self._pool = candidates(setting.space, rng)
        self._position = {number: i for i, number in enumerate(self._pool.numbers)}
        self._open = np.ones(len(self._pool.numbers), dtype=np.bool_)
        self._order = spread(self._pool, _DESIGN, rng)
        self._order += [int(i) for i in rng.permutation(len(self._pool.numbers))]
        self._rows: list[int] = []
        self._utilities: list[float] = []
        self._model: Surrogate | None = None
        self._refit_at = 0

    def propose(self, under_way: Sequence[Proposal] = ()) -> Proposal | None:
        """Give the design, then the configuration with the largest expected improvement."""
        if under_way or not self._open.any():
            return None
        if len(self._rows) < _DESIGN:
            row = next(row for row in self._order if self._open[row])
        else:
            row = self._most_improving()
        return Proposal(number=self._pool.numbers[row], inputs=self._inputs)

    def observe(self, number: int, seen: Observation | None) -> None:
        """Take in a measurement; a failed one only ends the configuration's candidacy."""
        row = self._position[number]
        self._open[row] = False
        if seen is not None:
            self._rows.append(row)
            self._utilities.append(utility(self._slo, seen))

    def _most_improving(self) -> int:
        settings = SurrogateSettings()
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


class VideoStorm(Ruled):
    """VideoStorm (NSDI 2017): hill climbing on the utility. A `Strategy`.

    From a random configuration it moves to the first neighbour (one knob changed) that is better,
    and starts again elsewhere where there is none.
    """

    def __init__(
        self, setting: SearchSetting, rng: np.random.Generator, *, inputs: int | None = None
    ) -> None:
        """Take on how many inputs each is measured; None: until the search's rule decides."""
        self._setting = setting
        self._rng = rng
        self._inputs = inputs
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
