"""CMBO as published: cost-aware multi-objective Bayesian optimisation (Circinus 4.2).

Two Gaussian processes on one-hot knobs, accuracy and log latency; the next configuration has the
largest utility U = Pr[f_a >= A] * Pr[f_l <= L] / C, in log space, because far from the SLOs the
probabilities underflow and every candidate would look alike. With earlier queries theirs vote
first (see `planner.strategy.warm_start`), in place of a space-filling design.

| symbol | meaning |
| --- | --- |
| f_a | accuracy of a configuration |
| f_l | log of the least latency that any placement gives it at full shares |
| C | profiling cost: predicted operator seconds per input on the reference machine |

Deviations: the paper models a plan with its placement; here f_l is the best over
placements, because placement is computed and not searched. The paper derives C from
f_l; it is predicted from the reference seconds instead, with the covariance that f_l
learnt, because latency on another tier is not what profiling costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from circinus.pipelines import checks
from circinus.pipelines.model.profile import FloatArray
from circinus.pipelines.model.slo import Slo
from circinus.planner.strategy.earlier_models import SHORTEST_S, EarlierModels, earlier_models
from circinus.planner.strategy.protocol import Measured, Proposal, Ruled, SearchSetting
from circinus.planner.strategy.space import (
    WHOLE_SPACE,
    candidates,
    encode,
    indices_of,
    neighbours,
    one_hot,
    scaled,
    spread,
)
from circinus.planner.strategy.surrogate import Posterior, Surrogate, SurrogateSettings, fit
from circinus.planner.strategy.warm_start import WarmStart

_REFIT_GROWTH = 1.25  # hyper-parameters are learnt anew at so many times as many observations

_FEWEST_TO_FIT = 2  # one observation has no variance to learn from


@dataclass(frozen=True, slots=True, kw_only=True)
class CmboSettings:
    """Settings of CMBO."""

    # deviates: space-filling-start
    # Size of the space-filling design before the models propose, `>= 1`. 5: as few as give the
    # models a slope in several knobs; each costs a full profile.
    initial: int = 5
    # Spaces up to this size are searched whole, of larger ones so many are drawn, `>= 1`.
    candidates: int = WHOLE_SPACE
    surrogate: SurrogateSettings = field(default_factory=SurrogateSettings)  # how the models learn
    # On how many inputs each configuration is measured; None: until the stopping rule decides.
    inputs: int | None = None
    # Most similar earlier queries that vote, `>= 0`; 0: none do. 10, as published.
    similar: int = 10
    # Whether knobs are numbers from 0 to 1 in place of one-hot values (Circinus E, figure 18).
    continuous: bool = False

    def __post_init__(self) -> None:
        for name, least in (("similar", 0), ("initial", 1), ("candidates", 1)):
            checks.at_least(f"cmbo.{name}", getattr(self, name), least)


class Cmbo(Ruled):
    """A `planner.strategy.protocol.Strategy`."""

    def __init__(
        self,
        setting: SearchSetting,
        rng: np.random.Generator,
        settings: CmboSettings | None = None,
    ) -> None:
        self._settings = settings = settings or CmboSettings()
        space = self._space = setting.space
        self._slo = setting.slo
        # deviates: drawn-candidates: a part of a large space, and neighbours of the best
        self._pool = candidates(space, rng, limit=settings.candidates)
        self._open = np.ones(len(self._pool.numbers), dtype=np.bool_)
        self._position = {number: i for i, number in enumerate(self._pool.numbers)}
        self._columns = scaled if settings.continuous else one_hot
        self._encoded = self._encode(self._pool.numbers)
        # What is proposed while there is too little to fit: the design, then anything.
        self._design = spread(self._pool, settings.initial, rng)
        self._fallback = [int(i) for i in rng.permutation(len(self._pool.numbers))]
        self._warm: WarmStart | None = None
        self._earlier: EarlierModels | None = None
        if settings.similar and setting.history:
            self._earlier = earlier_models(setting, self._pool.encoded, settings.surrogate)
        if self._earlier is not None:
            self._warm = WarmStart(self._earlier, settings.similar)
        self._expected: dict[int, tuple[float, float]] = {}  # by the query's own models
        self._done: set[int] = set()
        self._numbers: list[int] = []
        self._observed: list[Measured] = []
        self._models: tuple[Surrogate, Surrogate] | None = None
        self._refit_at = 0

    def propose(self, under_way: Sequence[Proposal] = ()) -> Proposal | None:
        """Return the initial design, then the candidate with the largest utility."""
        if under_way or not self._open.any():
            return None
        if self._warm is not None and not all(self._warm.mature):
            return self._voted(self._warm)
        for position in self._design if self._warm is None else ():
            if self._open[position]:
                return self._proposal(position)
        if len(self._observed) < _FEWEST_TO_FIT:
            position = next(p for p in self._fallback if self._open[p])
            return self._proposal(position)
        return self._most_useful()

    def observe(self, number: int, measured: Measured | None) -> None:
        """Learn a measurement; a failed one only ends the configuration's candidacy."""
        self._done.add(number)
        if number in self._position:
            self._open[self._position[number]] = False
        if measured is not None:
            self._numbers.append(number)
            self._observed.append(measured)
            if self._warm and self._earlier and number in self._position:
                figures = (
                    measured.accuracy.value,
                    float(np.log(max(measured.latency_s, SHORTEST_S))),
                )
                own, profiled = self._expected.pop(number, None), self._earlier.figures(measured)
                self._warm.learn(self._position[number], profiled, figures, own)

    def _voted(self, warm: WarmStart) -> Proposal:
        """Return what earlier queries vote for; note what the query's own models expect of it."""
        left = np.flatnonzero(self._open)
        if len(self._observed) < _FEWEST_TO_FIT:
            return self._proposal(warm.voted(left, self._slo))
        accuracy, latency = (m.predict(self._encoded[left]).target(0) for m in self._fit())
        accurate, fast = warm.mature
        own = (
            accuracy.log_at_least(self._slo.accuracy) if accurate else None,
            latency.log_at_most(np.log(self._slo.latency_s)) if fast else None,
        )
        position = warm.voted(left, self._slo, own)
        at = int(np.searchsorted(left, position))
        expected = (float(accuracy.mean[at]), float(latency.mean[at]))
        self._expected[self._pool.numbers[position]] = expected
        return self._proposal(position)

    def _most_useful(self) -> Proposal:
        accuracy_model, latency_model = self._fit()
        numbers, encoded = self._candidates()
        accuracy = accuracy_model.predict(encoded)
        # deviates: placement-computed
        latency = latency_model.predict(encoded)
        chance = log_chance(accuracy.target(0), latency.target(0), self._slo)
        # deviates: cost-from-reference-seconds
        best = int(np.argmax(chance - latency.mean[:, 1]))
        return Proposal(
            number=numbers[best],
            inputs=self._settings.inputs,
            chance=self._chance(accuracy, latency),
        )

    def _proposal(self, position: int) -> Proposal:
        return Proposal(number=self._pool.numbers[position], inputs=self._settings.inputs)

    def _chance(self, accuracy: Posterior, latency: Posterior) -> float | None:
        """Return a bound on Pr[any other meets the SLOs]; None before every knob value was met.

        By Boole's inequality, deviations doubled: models have been wrong where they had observed
        little, and an infeasible query is worth a second look.
        """
        if not (encode(self._space, self._numbers).any(axis=0)).all():
            return None
        chance = log_chance(accuracy.target(0, 2.0), latency.target(0, 2.0), self._slo)
        return min(float(np.exp(chance).sum()), 1.0)

    def _fit(self) -> tuple[Surrogate, Surrogate]:
        x = self._encode(self._numbers)
        accuracy = np.array([[measured.accuracy.value] for measured in self._observed])
        seconds = np.array(
            [[measured.latency_s, measured.reference_s] for measured in self._observed]
        )
        # deviates: log-latency
        log_seconds = np.log(np.maximum(seconds, SHORTEST_S))
        warm = self._models or (None, None)
        settings = self._settings.surrogate
        if len(self._observed) < self._refit_at:
            settings = replace(settings, warm_steps=0)
        else:
            self._refit_at = int(_REFIT_GROWTH * len(self._observed)) + 1
        self._models = (
            fit(x, accuracy, warm=warm[0], settings=settings),
            fit(x, log_seconds, warm=warm[1], settings=settings),
        )
        return self._models

    def _candidates(self) -> tuple[list[int], FloatArray]:
        """Return the numbers of open configurations, and their encoding."""
        positions = np.flatnonzero(self._open)
        numbers = [self._pool.numbers[position] for position in positions.tolist()]
        encoded = self._encoded[positions]
        if extra := [] if self._pool.whole else self._neighbours():
            encoded = np.concatenate([encoded, self._encode(extra)])
        return [*numbers, *extra], encoded

    def _encode(self, numbers: Sequence[int]) -> FloatArray:
        return self._columns(self._space, indices_of(self._space, numbers))

    def _neighbours(self) -> Sequence[int]:
        """Return the open neighbours of the best observed: nearest to its SLOs, then cheapest."""
        best = min(range(len(self._observed)), key=lambda i: self._distance(self._observed[i]))
        near = neighbours(self._space, self._numbers[best])
        return [n for n in near if n not in self._done and n not in self._position]

    def _distance(self, measured: Measured) -> tuple[float, float]:
        short = max(self._slo.accuracy - measured.accuracy.value, 0.0)
        late = max(measured.latency_s / self._slo.latency_s - 1, 0.0)
        return short + late, measured.reference_s


def log_chance(accuracy: Posterior, log_latency: Posterior, slo: Slo) -> FloatArray:  # (m,)
    """Return the log of the joint probability of meeting both, the two taken as independent."""
    return accuracy.log_at_least(slo.accuracy) + log_latency.log_at_most(np.log(slo.latency_s))
