"""Warm start of CMBO: models of earlier queries vote until the query's own is the better one.

Circinus 4.2 and algorithm 1, lines 13 to 30. An earlier query is similar as far as its models
predict what is profiled now: gaps between both are accumulated, for accuracy and for latency
apart, since the models of one may fit where those of another query do not.

| symbol | meaning |
| --- | --- |
| Q, m | earlier queries, candidates |
| g | mean gap of a query's predictions: |accuracy| and |log latency| |
| K | most similar queries: those with the smallest g |
| w | weight of a vote: 1 / (g + floor), of the K, adding up to 1 |

A candidate's votes are sum(w Pr[f_a >= A]) x sum(w Pr[f_l <= L]); the one with most is profiled.
A model of the query's own is mature when its gap is smaller than the mean of those of the K, over
the same candidates. It then takes the place of its factor; once both are, CMBO goes on alone.

What the paper leaves open: it speaks of votes and their weights, and gives no formulas. It has one
switch for both models; but where inputs differ and seconds do not, earlier models of latency stay
the better ones, and the query would never outgrow models of accuracy that mislead. Gaps of single
steps are noisy: maturity is looked at after three of them.
"""

from __future__ import annotations

import numpy as np

from circinus.pipelines import checks
from circinus.pipelines.model.configuration import IndexArray
from circinus.pipelines.model.profile import FloatArray
from circinus.pipelines.model.slo import Slo
from circinus.planner.deployment.prediction import predict
from circinus.planner.models.history import QueryRecord
from circinus.planner.strategy.protocol import SearchSetting
from circinus.planner.strategy.space import encode
from circinus.planner.strategy.surrogate import Posterior, SurrogateSettings, fit

FEWEST = 3
"""Configurations that an earlier query must have measured to have models, and gaps that maturity
is told from."""
_FLOORS = np.array([0.02, 0.05])  # of accuracy, of log latency: what any model is off by
_SHORTEST_S = 1e-9


def models_of_earlier(
    setting: SearchSetting, encoded: FloatArray, settings: SurrogateSettings
) -> Posterior | None:
    """Return what models of earlier queries predict of all candidates; None: none measured enough.

    That is accuracy and log of latency, shape (Q, 2, m), of the encoded candidates, shape (m, D).
    """
    found = [
        _predicted(setting, record, encoded, settings)
        for record in setting.history
        if len(record.configurations) >= FEWEST
    ]
    if not found:
        return None
    return Posterior(
        mean=np.stack([[one.mean for one in both] for both in found]),
        deviation=np.stack([[one.deviation for one in both] for both in found]),
    )


class WarmStart:
    """Votes of earlier queries, and how similar they are."""

    def __init__(self, models: Posterior, most: int) -> None:
        """Start from `models_of_earlier`; at most K = `most >= 1` of them vote."""
        checks.at_least("warm_start.most", most, 1)
        self._models = models
        self._most = most
        self._gaps = np.zeros((len(models.mean), 2))  # sums
        self._steps = 0
        self._own, self._beside = np.zeros(2), np.zeros_like(self._gaps)  # on common steps
        self._own_steps = 0

    @property
    def mature(self) -> tuple[bool, bool]:
        """Whether the query's own models, of accuracy and of latency, predict better by now."""
        if self._own_steps < FEWEST:
            return False, False
        similar = np.sort(self._beside, axis=0)[: self._most].mean(axis=0)
        accuracy, latency = (self._own < similar).tolist()
        return accuracy, latency

    def voted(
        self,
        left: IndexArray,
        slo: Slo,
        own: tuple[FloatArray | None, FloatArray | None] = (None, None),
    ) -> int:
        """Return the candidate with most votes, among the positions `left`, at least one.

        `own` is Pr[f_a >= A] and Pr[f_l <= L] of these, where the query's own model is mature.
        """
        mean, deviation = self._models.mean[:, :, left], self._models.deviation[:, :, left]
        accuracy, latency = (
            Posterior(mean=mean[:, target], deviation=deviation[:, target]) for target in range(2)
        )
        accurate = np.exp(accuracy.log_at_least(slo.accuracy))
        fast = np.exp(latency.log_at_most(np.log(slo.latency_s)))
        weights = self._weights()
        votes = weights[:, 0] @ accurate, weights[:, 1] @ fast
        first, second = (
            theirs if mine is None else mine for mine, theirs in zip(own, votes, strict=True)
        )
        return int(left[np.argmax(first * second)])

    def learn(
        self, position: int, measured: tuple[float, float], own: tuple[float, float] | None
    ) -> None:
        """Take in accuracy and log of latency that a candidate gave.

        `own` is what the query's own models had predicted; None: there were none.
        """
        truth = np.array(measured)
        gaps = np.abs(self._models.mean[:, :, position] - truth)
        self._gaps += gaps
        self._steps += 1
        if own is not None:
            self._own += np.abs(np.array(own) - truth)
            self._beside += gaps
            self._own_steps += 1

    def _weights(self) -> FloatArray:  # (Q, 2)
        """Return w: of accuracy and of latency, zero for all but the K."""
        gaps = self._gaps / max(self._steps, 1)
        ranks = gaps.argsort(axis=0, kind="stable").argsort(axis=0, kind="stable")
        weights = np.where(ranks < self._most, 1 / (gaps + _FLOORS), 0.0)
        return np.asarray(weights / weights.sum(axis=0))


def _predicted(
    setting: SearchSetting, record: QueryRecord, encoded: FloatArray, settings: SurrogateSettings
) -> tuple[Posterior, ...]:  # of accuracy and of log latency
    numbers = [setting.space.number(one.configuration) for one in record.configurations]
    x = encode(setting.space, numbers)
    accuracy = np.array([[one.accuracy] for one in record.configurations])
    least = []
    for one in record.configurations:
        spots = setting.placements_of(one.configuration)
        full = predict(setting.context, spots, one.mean_work, spots.full_steps)
        least.append(full.latency_s.min())
    log_latency = np.log(np.maximum(np.array(least), _SHORTEST_S))[:, None]
    fits = (fit(x, y, settings=settings) for y in (accuracy, log_latency))
    return tuple(one.predict(encoded).target(0) for one in fits)
