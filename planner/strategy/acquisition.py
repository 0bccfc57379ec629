"""What measuring configurations is worth, per second that it takes.

| symbol | meaning |
| --- | --- |
| A, L | SLOs of accuracy and latency |
| mu, v | posterior mean and variance of a configuration's accuracy |
| v' | the variance once n' inputs are measured: known before they are |
| z | how many deviations above A announces |

Measuring moves mu by a normal step of variance v - v', so
Pr[announced at n'] = Phi((mu - A - z sqrt v') / sqrt(v - v')), and alike for log latency.
Costs of candidates are in US dollars per hour at the rate of `costs.usual_rate`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf, log

import numpy as np
from scipy.special import log_ndtr, ndtri

from circinus.pipelines import checks
from circinus.pipelines.model.configuration import IndexArray
from circinus.pipelines.model.profile import BoolArray, FloatArray
from circinus.pipelines.model.query import PlanningContext
from circinus.pipelines.model.shares import SHARE_STEP
from circinus.pipelines.model.slo import Slo
from circinus.planner.deployment.costs import usual_rate
from circinus.planner.models.accuracy import Accuracies
from circinus.planner.models.ahead import MOST_EXAMPLES
from circinus.planner.models.operator_seconds import Seconds
from circinus.planner.models.score_noise import score_variance, worth
from circinus.planner.strategy.protocol import SearchSetting

_LONGER_LOOKS = 400  # candidates that are looked at further ahead than `minimum`
_TINY = 1e-12
_DECISION_S = 1e-6  # what measuring costs at least: nothing is free


_COST_DEVIATION = 0.4  # of the log of costs: shares come in steps, and caution raises them
_ROUNDING = 1e-9
_SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MultiFidelitySettings:
    """Settings of `planner.strategy.multi_fidelity`."""

    # Spaces up to this size are searched whole, of larger ones so many are drawn.
    candidates: int = 7_000
    confidence: float = 0.98  # that accuracy holds when a configuration is announced, in (0.5, 1)
    latency_confidence: float = 0.98  # that latency holds, in (0.5, 1)
    # Fewest inputs to announce on, `>= 2`. 16: a t-interval of so few is still honest, and an
    # oracle that confirms a known answer is granted 20.
    minimum: int = 16
    first: int = 1  # inputs at which a configuration is first left or continued, `>= 1`
    step: int = 4  # most inputs between two decisions, `>= 1`
    horizon_s: float = 3600.0  # how long a plan is taken to serve unless the query states it
    # Hyper-parameters are chosen anew each time there are so many times as many observations, `>
    # 1`.
    refit_growth: float = 1.5
    fidelities: bool = True  # whether the number of inputs is chosen; False: `minimum` at once
    # Whether seconds are learnt per operator; False: of whole configurations.
    structured: bool = True
    unpaid: bool = True  # whether only what the cache does not hold counts as cost
    ordered: bool = True  # whether neighbouring values of ordered knobs are alike
    paired: bool = True  # whether noise is shared between configurations that met the same inputs
    history: bool = True  # whether the models start from what earlier queries measured

    def __post_init__(self) -> None:
        for name in ("candidates", "first", "step"):
            checks.at_least(f"multi_fidelity.{name}", getattr(self, name), 1)
        checks.at_least("multi_fidelity.minimum", self.minimum, 2)
        for name in ("confidence", "latency_confidence"):
            value = getattr(self, name)
            rule = "must be in (0.5, 1)"
            checks.require(0.5 < value < 1, f"multi_fidelity.{name}", rule, value)
        growth = self.refit_growth
        checks.require(growth > 1, "multi_fidelity.refit_growth", "must be > 1", growth)
        checks.positive("multi_fidelity.horizon_s", self.horizon_s)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Predictions:
    """Predictions of the models for candidates, C of them."""

    met: IndexArray  # inputs, shape (C,)
    accuracies: Accuracies  # means, and how well they are known
    seconds: Seconds  # of profiling and of requests
    spread2: float  # squared coefficient of variation of a request's seconds

    def at(self, rows: IndexArray) -> Predictions:
        """Return the same of some candidates."""
        return replace(
            self,
            met=self.met[rows],
            accuracies=self.accuracies.at(rows),
            seconds=self.seconds.at(rows),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Acquisition:
    """Looks ahead to what more inputs may show."""

    slo: Slo  # a and L
    population: int  # measurements there are: inputs, and draws of them where operators draw
    settings: MultiFidelitySettings  # of the strategy

    @property
    def z(self) -> float:
        """Deviations that accuracy must be ahead by to be announced."""
        return float(ndtri(self.settings.confidence))

    @property
    def z_latency(self) -> float:
        """Deviations that log latency must be ahead by to be announced."""
        return float(ndtri(self.settings.latency_confidence))

    def valued(
        self, predictions: Predictions, rows: IndexArray, log_weight: FloatArray
    ) -> tuple[FloatArray, IndexArray]:
        """Return log(weight x chance per second) and the number of inputs that makes it largest.

        Of all candidates those at `rows` may be measured, and `log_weight` is what showing each
        is worth; both answers are of shape (C,), -inf and 0 elsewhere.
        """
        m = len(predictions.met)
        best, inputs = np.full(m, -inf), np.zeros(m, dtype=np.int64)
        ahead = targets(self.settings.minimum, self.population)
        if not self.settings.fidelities:
            ahead = ahead[:1]
        value, n = self._value_at(ahead[:1], predictions.at(rows))
        best[rows], inputs[rows] = value[0] + log_weight[rows], n[0]
        rows = _promising(rows, best, predictions.met)
        value, n = self._value_at(ahead[1:], predictions.at(rows))
        value, n = np.vstack([best[rows], value + log_weight[rows]]), np.vstack([inputs[rows], n])
        largest = value.argmax(axis=0)[None, :]
        best[rows] = np.take_along_axis(value, largest, axis=0)[0]
        inputs[rows] = np.take_along_axis(n, largest, axis=0)[0]
        return best, inputs

    def _value_at(
        self, about: IndexArray, predictions: Predictions
    ) -> tuple[FloatArray, IndexArray]:  # (targets, rows) each
        """Return log(chance per second) of measuring on about so many inputs, and on how many."""
        met, known, seconds = predictions.met, predictions.accuracies, predictions.seconds
        n = np.minimum(np.maximum(about[:, None], met + self.settings.first), self.population)

        def worth_of(inputs: IndexArray) -> FloatArray:
            return known.worth(inputs.astype(float), self.population)

        every = self.population if known.drawn is None else MOST_EXAMPLES  # runs there are
        runs = worth(n.astype(float), every) - worth(met.astype(float), every)
        accurate = log_confirmed(
            known.mean - self.slo.accuracy,
            known.variance,
            _then(
                known.variance, score_variance(known.mean, known.part), worth_of(n) - worth_of(met)
            ),
            self.z,
        )
        fast = log_confirmed(
            log(self.slo.latency_s) - seconds.log_latency,
            seconds.log_variance,
            _then(seconds.log_variance, np.array(0.5 * predictions.spread2), runs),
            self.z_latency,
        )
        return accurate + fast - np.log(self.seconds_to(n, predictions) + _DECISION_S), n

    def seconds_to(self, inputs: IndexArray, predictions: Predictions) -> FloatArray:
        """Return the seconds that measuring up to (targets, rows) inputs takes, the same shape."""
        left, total = inputs - predictions.met, np.zeros(inputs.shape)
        for hoped_s, paid in zip(
            predictions.seconds.hoped_s.T, predictions.seconds.paid.T, strict=True
        ):
            unpaid = np.minimum(left, np.maximum(inputs - paid, 0))
            total += hoped_s * (unpaid if self.settings.unpaid else left)
        return total


def _then(variance: FloatArray, noise: FloatArray, more: FloatArray) -> FloatArray:
    """Return what a variance falls to, shape (targets, rows); `noise` is that of one input."""
    return np.asarray(1 / (1 / (variance + _TINY) + more / (noise + _TINY)))


def targets(minimum: int, population: int) -> IndexArray:
    """Return numbers of inputs to look ahead to: `minimum`, then about half as many again."""
    inputs = [min(minimum, population)]
    while inputs[-1] < population:
        inputs.append(min(int(inputs[-1] * 1.6) + 1, population))
    return np.array(inputs)


def log_confirmed(ahead: FloatArray, now: FloatArray, then: FloatArray, z: float) -> FloatArray:
    """Return log Pr[still z deviations ahead of the bound], variance falling from `now` to `then`.

    The mean moves by a normal step of variance `now - then`, whatever the truth.
    """
    moves = np.sqrt(np.maximum(now - then, _TINY))
    return np.asarray(log_ndtr((ahead - z * np.sqrt(then)) / moves))


def _promising(rows: IndexArray, value: FloatArray, met: IndexArray) -> IndexArray:
    """Return the rows worth a longer look ahead: the best so far, and all that were met."""
    if len(rows) <= _LONGER_LOOKS:
        return rows
    best = rows[np.argpartition(-value[rows], _LONGER_LOOKS)[:_LONGER_LOOKS]]
    return np.union1d(best, rows[met[rows] > 0])


def log_affordable(
    context: PlanningContext, seconds: Seconds, *, widened: float = 1.0
) -> FloatArray:  # (C,)
    """Return the log of the chance that the cheapest deployment meets the cost SLOs."""
    bound, cost = _most_usd_per_hour(context), seconds.share_cost
    if bound == inf or not _is_priced(context):
        return np.zeros(len(cost))
    # Where latency is likely missed there is no cost: the latency SLO covers that. What costs
    # nothing is within any bound.
    finite = np.isfinite(cost) & (cost > 0)
    deviation = np.sqrt(seconds.log_variance + _COST_DEVIATION**2)
    with np.errstate(divide="ignore"):
        ahead = np.log(bound) - np.log(np.where(finite, np.maximum(cost, _TINY), 1.0))
    return np.where(finite, log_ndtr(ahead / (widened * deviation)), 0.0)


def least_costs(context: PlanningContext, seconds: Seconds) -> FloatArray:  # (C,)
    """Return what the cheapest deployment costs at least, a deviation below what is expected.

    Shares of machines come in steps: where all have one price, so do costs. No candidate costs
    less than a step of the cheapest machine, unless free ones do all the work.
    """
    if not _is_priced(context):
        return np.zeros(len(seconds.share_cost))
    least = seconds.share_cost * np.exp(-np.sqrt(seconds.log_variance))
    tiers = context.infrastructure.tiers
    prices = {tier.price_usd_per_hour for tier in tiers if tier.price_usd_per_hour > 0}
    if not prices or any(tier.remote for tier in tiers):
        return least
    step = min(prices) * SHARE_STEP
    stepped = np.ceil(least / step - _ROUNDING) * step if len(prices) == 1 else least
    return np.where(least > 0, np.maximum(stepped, step), 0.0)


def _is_priced(context: PlanningContext) -> bool:
    tiers = context.infrastructure.tiers
    return any(tier.price_usd_per_hour > 0 or tier.remote for tier in tiers)


def _most_usd_per_hour(context: PlanningContext) -> float:
    """Return what the cost SLOs allow; inf: anything."""
    slo, rate = context.slo, usual_rate(context)
    hour = inf if slo.cost_usd_per_hour is None else slo.cost_usd_per_hour
    thousand = slo.cost_usd_per_1000_requests
    return hour if thousand is None else min(hour, thousand / 1000 * rate * _SECONDS_PER_HOUR)


def log_saving(seconds: Seconds, best_cost: float, duration_s: float) -> FloatArray:  # (C,)
    """Return the log of the US dollars that a plan cheaper than the best should save."""
    with np.errstate(divide="ignore"):
        return np.log(seconds.expected_saving(best_cost) * duration_s / _SECONDS_PER_HOUR)


def chance_of(
    setting: SearchSetting, predictions: Predictions, rows: BoolArray, *, widened: float = 1.0
) -> float:
    """Return a bound on the chance that any of some candidates, shape (C,), meets the SLOs.

    By Boole's inequality, deviations so many times as large.
    """
    known = predictions.accuracies
    above = known.mean - setting.slo.accuracy
    accurate = log_ndtr(above / (widened * np.sqrt(known.variance)))
    allowed = log_allowed(setting.context, predictions, widened=widened)
    return min(float(np.exp((accurate + allowed)[rows]).sum()), 1.0)


def log_allowed(
    context: PlanningContext, predictions: Predictions, *, widened: float = 1.0
) -> FloatArray:  # (C,)
    """Return the log of the chance that a deployment meets the SLOs of latency and cost."""
    cheap = log_affordable(context, predictions.seconds, widened=widened)
    return np.asarray(log_fast(context, predictions, widened=widened) + cheap)


def log_fast(
    context: PlanningContext, predictions: Predictions, *, widened: float = 1.0
) -> FloatArray:  # (C,)
    """Return the log of the chance that a deployment meets the SLO of latency."""
    seconds = predictions.seconds
    deviation = widened * np.sqrt(seconds.log_variance + _TINY)
    return np.asarray(log_ndtr((log(context.slo.latency_s) - seconds.log_latency) / deviation))
