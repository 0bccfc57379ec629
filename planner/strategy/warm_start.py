"""Warm start (Circinus 4.2, algorithm 1, lines 13 to 30): earlier queries vote.

Models of earlier queries vote until the query's own is the better one. An earlier query is similar
as far as its models predict what is profiled now: gaps between both are accumulated, for accuracy
and for latency apart, of all earlier queries.

| symbol | meaning |
| --- | --- |
| Q, m | earlier queries, candidates |
| g | mean gap of a query's predictions: |accuracy| and |log latency| |
| n | inputs that a configuration of a query's record rests on |
| u | mean of n^(-1/2) over the record's configurations |
| w | similarity and weight of a vote: 1 / (g + e u + floor) |
| K | most similar queries: those with the largest w, of equals the newest |

A candidate's votes are sum(w Pr[f_a >= A]) x sum(w Pr[f_l <= L]) over the K, their w adding up to
1; the one with most is profiled. A model of the query's own is mature when its gap is smaller than
the mean gap of those that voted, over the same candidates, each as it was chosen before. It then
takes the place of its factor; once both are, CMBO goes on alone.

What the paper leaves open: it speaks of votes and their weights, and gives no formulas. It does
not weigh how well an earlier query was measured: e u is what a mean of n inputs is off by, so a
record on few inputs counts less, and of records that predict alike the best measured ones vote. It
has one switch for both models; but where inputs differ and seconds do not, earlier models of
latency stay the better ones, and the query would never outgrow models of accuracy that mislead.
Gaps of single steps are noisy: maturity is looked at after three of them.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from scipy.special import logsumexp

from circinus.pipelines import checks
from circinus.pipelines.model.configuration import IndexArray
from circinus.pipelines.model.profile import FloatArray
from circinus.pipelines.model.slo import Slo
from circinus.planner.strategy.surrogate import Posterior

FEWEST_GAPS = 3
"""That maturity is estimated from."""
_FLOORS = np.array([0.02, 0.05])  # of accuracy, of log latency: what any model is off by
_SPREADS = np.array([0.5, 0.5])  # e, of one input: the largest of a score; seconds vary as much


class Voters(Protocol):
    """Models of Q earlier queries, the newest first, of m candidates."""

    doubts: FloatArray  # u of each, in (0, 1], shape (Q,)

    def means(self, position: int) -> FloatArray:
        """Return what all predict of a candidate, shape (Q, 2): accuracy, log latency."""

    def posteriors(self, queries: IndexArray, target: int) -> list[Posterior]:
        """Return predictions, shape (m,), of some of them: accuracy (0) or log latency (1)."""


class WarmStart:
    """Votes of earlier queries, and how similar they are."""

    def __init__(self, voters: Voters, most: int) -> None:
        """At most K = `most >= 1` vote on each of accuracy and latency."""
        checks.at_least("warm_start.most", most, 1)
        self._voters, self._most = voters, most
        self._gaps = np.zeros((len(voters.doubts), 2))  # sums
        self._steps = 0
        self._own, self._beside = np.zeros(2), np.zeros(2)  # sums on common steps
        self._own_steps = 0

    @property
    def mature(self) -> tuple[bool, bool]:
        """Whether the query's own models, of accuracy and of latency, predict better by now."""
        # deviates: switch-per-model
        if self._own_steps < FEWEST_GAPS:
            return False, False
        accuracy, latency = (self._own < self._beside).tolist()
        return accuracy, latency

    @property
    def weights(self) -> FloatArray:  # (Q, 2)
        """Return w of every query, of accuracy and of latency."""
        # deviates: vote-weights
        gaps = self._gaps / max(self._steps, 1)
        return np.asarray(1 / (gaps + _SPREADS * self._voters.doubts[:, None] + _FLOORS))

    def similar(self, target: int) -> IndexArray:  # (min(K, Q),)
        """Return the K most similar queries, the most similar first."""
        return np.argsort(-self.weights[:, target], kind="stable")[: self._most]

    def voted(
        self,
        left: IndexArray,
        slo: Slo,
        own: tuple[FloatArray | None, FloatArray | None] = (None, None),
    ) -> int:
        """Return the candidate with most votes, among the positions `left`, at least one.

        `own` is log Pr[f_a >= A] and log Pr[f_l <= L] of these, where the query's own model is
        mature. Far from the SLOs chances underflow, and all candidates would look alike: hence
        logarithms.
        """
        accurate, fast = (
            self._log_votes(target, left, slo) if mine is None else mine
            for target, mine in enumerate(own)
        )
        return int(left[np.argmax(accurate + fast)])

    def learn(
        self,
        position: int,
        profiled: tuple[float, float],  # what `Voters.means` predicts
        figures: tuple[float, float],  # what `Voters.posteriors` and the query's models predict
        own: tuple[float, float] | None,  # what these had predicted; None: there were none
    ) -> None:
        """Learn accuracy and log latency of a candidate."""
        if own is not None:
            for target in range(2):
                each = self._voters.posteriors(self.similar(target), target)
                means = np.array([one.mean[position] for one in each])
                self._beside[target] += np.abs(means - figures[target]).mean()
            self._own += np.abs(np.array(own) - np.array(figures))
            self._own_steps += 1
        self._gaps += np.abs(self._voters.means(position) - np.array(profiled))
        self._steps += 1

    def _log_votes(self, target: int, left: IndexArray, slo: Slo) -> FloatArray:  # (len(left),)
        queries = self.similar(target)
        weights = self.weights[queries, target]
        chances = [
            one.log_at_least(slo.accuracy)
            if target == 0
            else one.log_at_most(np.log(slo.latency_s))
            for one in self._voters.posteriors(queries, target)
        ]
        each = np.stack(chances)[:, left]  # (K, len(left))
        return np.asarray(logsumexp(each, axis=0, b=(weights / weights.sum())[:, None]))
