"""What measuring configurations is worth, per second that it takes.

| symbol | meaning |
| --- | --- |
| A, L | SLOs of accuracy and latency |
| mu, v | posterior mean and variance of a configuration's accuracy |
| v' | the variance once n' inputs are measured: known before they are |
| z | how many deviations above A announces |

Measuring moves mu by a normal step of variance v - v', so
Pr[announced at n'] = Phi((mu - A - z sqrt v') / sqrt(v - v')), and alike for log latency.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf, log

import numpy as np
from scipy.special import ndtri

from pipelines.configuration import IndexArray
from pipelines.profile import FloatArray
from pipelines.slo import Slo
from planner.lookahead import log_index, log_shown, targets
from planner.multi_fidelity_settings import MultiFidelitySettings
from planner.operator_seconds import Seconds
from planner.scores import score_variance, worth

_LONGER_LOOKS = 400  # candidates that are looked at further ahead than `minimum`
_TINY = 1e-12
_DECISION_S = 1e-6  # what measuring costs at least: nothing is free


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Look:
    """What the models say of candidates, C of them.

    Attributes:
        met: Inputs, shape (C,).
        mean: Of accuracies, shape (C,).
        variance: Of accuracies, shape (C,).
        part: p of `planner.scores`: how much single scores vary.
        seconds: Of profiling and of requests.
        spread2: Squared coefficient of variation of a request's seconds.
    """

    met: IndexArray
    mean: FloatArray
    variance: FloatArray
    part: float
    seconds: Seconds
    spread2: float

    def at(self, rows: IndexArray) -> Look:
        """Give the same of some candidates."""
        return replace(
            self,
            met=self.met[rows],
            mean=self.mean[rows],
            variance=self.variance[rows],
            seconds=self.seconds.at(rows),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LookAhead:
    """Looks ahead to what more inputs may show.

    Attributes:
        slo: A and L.
        population: Inputs there are.
        settings: Of the strategy.
    """

    slo: Slo
    population: int
    settings: MultiFidelitySettings

    @property
    def z(self) -> float:
        """Deviations that accuracy must be ahead by to be announced."""
        return float(ndtri(self.settings.confidence))

    @property
    def z_latency(self) -> float:
        """Deviations that log latency must be ahead by to be announced."""
        return float(ndtri(self.settings.latency_confidence))

    def valued(
        self, look: Look, rows: IndexArray, log_weight: FloatArray
    ) -> tuple[FloatArray, IndexArray]:
        """Give log(weight x chance per second) and the number of inputs that makes it largest.

        Args:
            look: At all candidates.
            rows: Which of them may be measured.
            log_weight: What showing each is worth, shape (C,).

        Returns:
            Both of shape (C,), -inf and 0 elsewhere than at `rows`.
        """
        m = len(look.mean)
        best, inputs = np.full(m, -inf), np.zeros(m, dtype=np.int64)
        ahead = targets(self.settings.minimum, self.population)
        if not self.settings.fidelities:
            ahead = ahead[:1]
        value, n = self._value_at(ahead[:1], look.at(rows), staged=False)
        best[rows], inputs[rows] = value[0] + log_weight[rows], n[0]
        rows = _promising(rows, best, look.met)
        staged = self.settings.staged and self.settings.fidelities
        value, n = self._value_at(ahead if staged else ahead[1:], look.at(rows), staged=staged)
        value, n = np.vstack([best[rows], value + log_weight[rows]]), np.vstack([inputs[rows], n])
        largest = value.argmax(axis=0)[None, :]
        best[rows] = np.take_along_axis(value, largest, axis=0)[0]
        inputs[rows] = np.take_along_axis(n, largest, axis=0)[0]
        return best, inputs

    def seconds(self, look: Look, row: int, inputs: int) -> float:
        """Give the seconds that measuring a candidate on so many inputs in all takes."""
        return float(self._cost(np.array([[inputs]]), look.at(np.array([row])))[0, 0])

    def _value_at(
        self, about: IndexArray, look: Look, *, staged: bool
    ) -> tuple[FloatArray, IndexArray]:  # (targets, rows) each
        """Give log(chance per second) of measuring on about so many inputs, and on how many."""
        met = look.met
        n = np.minimum(np.maximum(about[:, None], met + self.settings.first), self.population)
        then = self._accuracy_variance(n, look)
        above = look.mean - self.slo.accuracy
        log_variance = look.seconds.log_variance
        later = self._then(log_variance, np.array(0.5 * look.spread2), n, met)
        ahead = log(self.slo.latency_s) - look.seconds.log_latency
        fast = log_shown(ahead, log_variance, later, self.z_latency)
        cost = self._cost(n, look) + _DECISION_S
        if not staged:
            return log_shown(above, look.variance, then, self.z) + fast - np.log(cost), n
        step = np.where(met == 0, self.settings.first, self.settings.step)
        soon = np.minimum(met + step, n)
        first_cost = self._cost(soon, look) + _DECISION_S
        accurate = log_index(
            above,
            look.variance,
            self._accuracy_variance(soon, look),
            then,
            self.z,
            first_cost=first_cost,
            rest_cost=np.maximum(cost - first_cost, 0.0),
        )
        return accurate + fast, n

    def _accuracy_variance(self, inputs: IndexArray, look: Look) -> FloatArray:
        return self._then(look.variance, score_variance(look.mean, look.part), inputs, look.met)

    def _then(
        self, variance: FloatArray, noise: FloatArray, inputs: IndexArray, met: IndexArray
    ) -> FloatArray:
        """Give what a variance falls to, shape (targets, rows); `noise` is that of one input."""
        after, before = (worth(x.astype(float), self.population) for x in (inputs, met))
        return np.asarray(1 / (1 / (variance + _TINY) + (after - before) / (noise + _TINY)))

    def _cost(self, inputs: IndexArray, look: Look) -> FloatArray:
        """Give the seconds that measuring up to (targets, rows) inputs takes, the same shape."""
        left, total = inputs - look.met, np.zeros(inputs.shape)
        for hoped_s, paid in zip(look.seconds.hoped_s.T, look.seconds.paid.T, strict=True):
            unpaid = np.minimum(left, np.maximum(inputs - paid, 0))
            total += hoped_s * (unpaid if self.settings.unpaid else left)
        return total


def _promising(rows: IndexArray, value: FloatArray, met: IndexArray) -> IndexArray:
    """Give the rows worth a longer look ahead: the best so far, and all that were met."""
    if len(rows) <= _LONGER_LOOKS:
        return rows
    best = rows[np.argpartition(-value[rows], _LONGER_LOOKS)[:_LONGER_LOOKS]]
    return np.union1d(best, rows[met[rows] > 0])
