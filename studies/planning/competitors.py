"""Competitors of Circinus: Vulcan and VideoStorm, and what a user would take instead.

Vulcan and VideoStorm search by one utility. Placements are computed from every profile instead of
searched or climbed over, as everywhere in this planner: stronger competitors than the published
ones. Both are `StrategyFactory`s: called with a setting and a generator, they are the strategy of
one search.

Optuna and BoTorch need the extra `studies`. Both propose one configuration at a time, observe
accuracy and latency as constraints, and minimise the operator seconds of an input.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from circinus.pipelines.model.slo import Slo
from circinus.planner.strategy.protocol import (
    Measured,
    Proposal,
    Ruled,
    SearchSetting,
    StrategyFactory,
)
from circinus.planner.strategy.space import candidates, indices_of, neighbours, spread
from circinus.planner.strategy.surrogate import Surrogate, SurrogateSettings, fit
from circinus.scheduler.pool.ribbon import expected_improvement

ACCURACY_WEIGHT = 2.0
"""alpha: relative shortfalls of accuracy are smaller than those of latency."""
_BONUS = 0.1
_DESIGN = 5  # configurations, space-filling, before a model proposes
_REFIT_GROWTH = 1.25


def utility(slo: Slo, measured: Measured) -> float:
    """Return the utility: at least 0 when both SLOs hold, below -0.9 at worst twice the latency.

    Circinus 4.2 writes it as |latency - target| + alpha |accuracy - target|, less being better.
    Taken literally that punishes being better than asked; here only shortfalls count, and a tenth
    of the spare latency breaks ties towards cheap configurations: both in the competitors' favour.
    """
    # deviates: utility-of-shortfalls
    short = max(slo.accuracy - measured.accuracy.value, 0.0) / max(slo.accuracy, 1e-9)
    late = min(max(measured.latency_s / slo.latency_s - 1, 0.0), 10.0)
    spare = max(1 - measured.latency_s / slo.latency_s, 0.0)
    return _BONUS * spare - ACCURACY_WEIGHT * short - late


# deviates: vulcan-as-described
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
        """Return the design, then the configuration with the largest expected improvement."""
        if under_way or not self._open.any():
            return None
        if len(self._rows) < _DESIGN:
            row = next(row for row in self._order if self._open[row])
        else:
            row = self._most_improving()
        return Proposal(number=self._pool.numbers[row], inputs=self._inputs)

    def observe(self, number: int, measured: Measured | None) -> None:
        """Take in a measurement; a failed one only ends the configuration's candidacy."""
        row = self._position[number]
        self._open[row] = False
        if measured is not None:
            self._rows.append(row)
            self._utilities.append(utility(self._slo, measured))

    def _most_improving(self) -> int:
        settings = SurrogateSettings()
        if len(self._rows) < self._refit_at:
            settings = replace(settings, warm_steps=0)
        else:
            self._refit_at = int(_REFIT_GROWTH * len(self._rows)) + 1
        y = np.array(self._utilities)[:, None]
        self._model = fit(self._pool.encoded[self._rows], y, warm=self._model, settings=settings)
        rows = np.flatnonzero(self._open)
        measured = self._model.predict(self._pool.encoded[rows])
        deviation = np.maximum(measured.deviation[:, 0], 1e-9)
        gained = expected_improvement(measured.mean[:, 0], deviation, max(self._utilities))
        return int(rows[np.argmax(gained)])


# deviates: first-better-neighbour
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
        """Return the next neighbour, or a new start where all neighbours are known."""
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

    def observe(self, number: int, measured: Measured | None) -> None:
        """Move when it is better than where the search stands."""
        gained = -np.inf if measured is None else utility(self._setting.slo, measured)
        self._known[number] = gained
        if measured is not None and (self._here is None or gained > self._known[self._here]):
            self._here = number
            near = neighbours(self._setting.space, number)
            self._round = [near[i] for i in self._rng.permutation(len(near))]


def adapter(name: str, inputs: int) -> StrategyFactory:
    """Return the adapter of that name: optuna_tpe, optuna_gp or botorch; KeyError for others."""
    made: dict[str, StrategyFactory] = {
        "optuna_tpe": partial(_Optuna, kind="tpe", inputs=inputs),
        "optuna_gp": partial(_Optuna, kind="gp", inputs=inputs),
        "botorch": partial(_Botorch, inputs=inputs),
    }
    return made[name]


def _constraints(setting: SearchSetting, measured: Measured) -> tuple[float, float]:
    """Return what is at most 0 where the SLOs hold."""
    slo = setting.slo
    return slo.accuracy - measured.accuracy.value, float(
        np.log(measured.latency_s / slo.latency_s)
    )


class _Optuna(Ruled):
    """Optuna's samplers through ask and tell. A `planner.strategy.protocol.Strategy`."""

    def __init__(
        self, setting: SearchSetting, rng: np.random.Generator, *, kind: str, inputs: int
    ) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._optuna = optuna
        self._setting = setting
        self._inputs = inputs
        seed = int(rng.integers(2**31))
        with warnings.catch_warnings(action="ignore"):  # experimental arguments
            kinds = {"tpe": optuna.samplers.TPESampler, "gp": optuna.samplers.GPSampler}
            sampler = kinds[kind](
                seed=seed, constraints_func=lambda trial: trial.user_attrs["constraints"]
            )
        self._study = optuna.create_study(sampler=sampler)
        self._waiting: dict[int, Any] = {}
        self._done: dict[int, Measured | None] = {}
        fallback = candidates(setting.space, rng).numbers
        self._left = iter([fallback[i] for i in rng.permutation(len(fallback))][::-1])

    def propose(self, under_way: Sequence[Proposal] = ()) -> Proposal | None:
        """Ask until something new comes: the samplers repeat themselves in small spaces."""
        if under_way or len(self._done) >= self._setting.space.size:
            return None
        for _ in range(20):
            number, trial = self._next_trial()
            if number not in self._done:
                self._waiting[number] = trial
                return Proposal(number=number, inputs=self._inputs)
            self._tell(trial, self._done[number])
        new = (number for number in self._left if number not in self._done)
        return next((Proposal(number=number, inputs=self._inputs) for number in new), None)

    def observe(self, number: int, measured: Measured | None) -> None:
        """Report the measurement to the study."""
        self._done[number] = measured
        trial = self._waiting.pop(number, None)
        if trial is not None:
            self._tell(trial, measured)

    def _next_trial(self) -> tuple[int, Any]:
        with warnings.catch_warnings(action="ignore"):
            trial = self._study.ask()
            space = self._setting.space
            row = [
                trial.suggest_int(slot.key, 0, radix - 1)
                if slot.knob.ordered
                else trial.suggest_categorical(slot.key, list(range(radix)))
                for slot, radix in zip(space.graph.slots, space.radices, strict=True)
            ]
        return int(space.numbers(np.array([row]))[0]), trial

    def _tell(self, trial: Any, measured: Measured | None) -> None:  # noqa: ANN401 - Optuna's
        if measured is None:
            self._study.tell(trial, state=self._optuna.trial.TrialState.FAIL)
            return
        trial.set_user_attr("constraints", _constraints(self._setting, measured))
        self._study.tell(trial, measured.reference_s)


class _Botorch(Ruled):
    """Constrained noisy log expected improvement over all candidates. A `Strategy`."""

    def __init__(self, setting: SearchSetting, rng: np.random.Generator, *, inputs: int) -> None:
        self._setting = setting
        self._inputs = inputs
        self._pool = candidates(setting.space, rng, limit=7_000)
        radices = np.maximum(np.array(setting.space.radices) - 1, 1)
        ordered = np.array([bool(slot.knob.ordered) for slot in setting.space.graph.slots])
        indices = indices_of(setting.space, self._pool.numbers)
        scaled = (indices / radices)[:, ordered]
        self._x = np.concatenate([self._pool.encoded, scaled], axis=1)
        self._position = {number: i for i, number in enumerate(self._pool.numbers)}
        self._open = np.ones(len(self._x), dtype=np.bool_)
        self._design = spread(self._pool, _DESIGN, rng)
        self._rows: list[int] = []
        self._y: list[tuple[float, float, float]] = []
        self._seed = int(rng.integers(2**31))

    def propose(self, under_way: Sequence[Proposal] = ()) -> Proposal | None:
        """Return the design, then the candidate with the largest acquisition."""
        if under_way or not self._open.any():
            return None
        row = next((r for r in self._design if self._open[r]), None)
        if row is None:
            row = self._best() if len(self._rows) > 1 else int(np.flatnonzero(self._open)[0])
        return Proposal(number=self._pool.numbers[row], inputs=self._inputs)

    def observe(self, number: int, measured: Measured | None) -> None:
        """Take in objective and constraints."""
        row = self._position[number]
        self._open[row] = False
        if measured is not None:
            self._rows.append(row)
            short, late = _constraints(self._setting, measured)
            self._y.append((-float(np.log(measured.reference_s)), short, late))

    def _best(self) -> int:
        import botorch
        import gpytorch
        import torch

        torch.manual_seed(self._seed)
        x, y = torch.tensor(self._x[self._rows]), torch.tensor(self._y, dtype=torch.float64)
        model = botorch.models.SingleTaskGP(
            x, y, outcome_transform=botorch.models.transforms.Standardize(m=3)
        )
        with warnings.catch_warnings(action="ignore"):  # fits that end early are good enough
            botorch.fit_gpytorch_mll(
                gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
            )
            acquisition = botorch.acquisition.logei.qLogNoisyExpectedImprovement(
                model=model,
                X_baseline=x,
                sampler=botorch.sampling.SobolQMCNormalSampler(torch.Size([32]), seed=self._seed),
                objective=botorch.acquisition.objective.GenericMCObjective(
                    lambda z, X=None: z[..., 0]
                ),
                constraints=[lambda z: z[..., 1], lambda z: z[..., 2]],
                prune_baseline=True,
            )
            rows = np.flatnonzero(self._open)
            parts = np.split(self._x[rows], range(500, len(rows), 500))
            with torch.no_grad():
                values = torch.cat([acquisition(torch.tensor(x)[:, None, :]) for x in parts])
        return int(rows[int(values.argmax())])
