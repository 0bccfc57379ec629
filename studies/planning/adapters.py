"""What a user would take instead: Optuna and BoTorch as strategies. Needs the extra `studies`.

Both are asked one configuration at a time, are told accuracy and latency as constraints
and the operator seconds of an input as what to minimise.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from circinus.planner.strategy.protocol import (
    Observation,
    Proposal,
    Ruled,
    SearchSetting,
    StrategyFactory,
)
from circinus.planner.strategy.space import candidates, indices_of, spread

_DESIGN = 5


def adapter(name: str, inputs: int) -> StrategyFactory:
    """Give the adapter of that name: optuna_tpe, optuna_gp or botorch; KeyError for others."""
    made: dict[str, StrategyFactory] = {
        "optuna_tpe": partial(_Optuna, kind="tpe", inputs=inputs),
        "optuna_gp": partial(_Optuna, kind="gp", inputs=inputs),
        "botorch": partial(_Botorch, inputs=inputs),
    }
    return made[name]


def _constraints(setting: SearchSetting, seen: Observation) -> tuple[float, float]:
    """Give what is at most 0 where the SLOs hold."""
    slo = setting.slo
    return slo.accuracy - seen.accuracy, float(np.log(seen.latency_s / slo.latency_s))


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
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # experimental arguments
            kinds = {"tpe": optuna.samplers.TPESampler, "gp": optuna.samplers.GPSampler}
            sampler = kinds[kind](
                seed=seed, constraints_func=lambda trial: trial.user_attrs["constraints"]
            )
        self._study = optuna.create_study(sampler=sampler)
        self._waiting: dict[int, Any] = {}
        self._done: dict[int, Observation | None] = {}
        fallback = candidates(setting.space, rng).numbers
        self._left = iter([fallback[i] for i in rng.permutation(len(fallback))][::-1])

    def propose(self, under_way: Sequence[Proposal] = ()) -> Proposal | None:
        """Ask until something new comes: the samplers repeat themselves in small spaces."""
        if under_way or len(self._done) >= self._setting.space.size:
            return None
        for _ in range(20):
            number, trial = self._asked()
            if number not in self._done:
                self._waiting[number] = trial
                return Proposal(number=number, inputs=self._inputs)
            self._tell(trial, self._done[number])
        new = (number for number in self._left if number not in self._done)
        return next((Proposal(number=number, inputs=self._inputs) for number in new), None)

    def observe(self, number: int, seen: Observation | None) -> None:
        """Tell the study."""
        self._done[number] = seen
        trial = self._waiting.pop(number, None)
        if trial is not None:
            self._tell(trial, seen)

    def _asked(self) -> tuple[int, Any]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trial = self._study.ask()
            space = self._setting.space
            row = [
                trial.suggest_int(slot.key, 0, radix - 1)
                if slot.knob.ordered
                else trial.suggest_categorical(slot.key, list(range(radix)))
                for slot, radix in zip(space.graph.slots, space.radices, strict=True)
            ]
        return int(space.numbers(np.array([row]))[0]), trial

    def _tell(self, trial: Any, seen: Observation | None) -> None:  # noqa: ANN401 - Optuna's
        if seen is None:
            self._study.tell(trial, state=self._optuna.trial.TrialState.FAIL)
            return
        trial.set_user_attr("constraints", _constraints(self._setting, seen))
        self._study.tell(trial, seen.reference_s)


class _Botorch(Ruled):
    """Constrained noisy log expected improvement over all candidates. A `Strategy`."""

    def __init__(self, setting: SearchSetting, rng: np.random.Generator, *, inputs: int) -> None:
        import torch

        self._torch = torch
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
        """Give the design, then the candidate with the largest acquisition."""
        if under_way or not self._open.any():
            return None
        row = next((r for r in self._design if self._open[r]), None)
        if row is None:
            row = self._best() if len(self._rows) > 1 else int(np.flatnonzero(self._open)[0])
        return Proposal(number=self._pool.numbers[row], inputs=self._inputs)

    def observe(self, number: int, seen: Observation | None) -> None:
        """Take in objective and constraints."""
        row = self._position[number]
        self._open[row] = False
        if seen is not None:
            self._rows.append(row)
            short, late = _constraints(self._setting, seen)
            self._y.append((-float(np.log(seen.reference_s)), short, late))

    def _best(self) -> int:
        import botorch
        import gpytorch

        torch = self._torch
        torch.manual_seed(self._seed)
        x, y = torch.tensor(self._x[self._rows]), torch.tensor(self._y, dtype=torch.float64)
        model = botorch.models.SingleTaskGP(
            x, y, outcome_transform=botorch.models.transforms.Standardize(m=3)
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # fits that end early are good enough here
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
            parts = torch.tensor(self._x[rows]).split(500)
            with torch.no_grad():
                values = torch.cat([acquisition(part[:, None, :]) for part in parts])
        return int(rows[int(values.argmax())])
