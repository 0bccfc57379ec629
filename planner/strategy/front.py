"""Which candidates may belong to the front, though they were not measured enough to decide.

A candidate belongs to it when it meets the SLOs and no plan that costs as little is as accurate.

| symbol | meaning |
| --- | --- |
| C, P | candidates, plans announced |
| A | SLO of accuracy |
| mu, v | mean and variance of a candidate's accuracy |
| a, w | those of the most accurate plan, of another candidate, that costs no more |

| N, n, S | inputs there are, those that a candidate met, the sum of its scores there |

Pr[belongs] = Pr[in time and affordable] min(Pr[accuracy >= A], Pr[accuracy > a]). By the models
accuracy is normal; by a candidate's own scores the mean of the inputs to come is Beta(S + 1,
n - S + 1). Of few candidates one is decided where both agree: models have learnt little by then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import numpy as np
from scipy.special import betaincc, ndtr, ndtri

from circinus.pipelines.model.configuration import IndexArray
from circinus.pipelines.model.plan import Plan
from circinus.pipelines.model.profile import BoolArray, FloatArray
from circinus.planner.models.estimates import CONFIDENCE

HARDLY = 0.01
"""Chance below which a candidate is taken not to belong to the front; above 1 - that, a plan is
taken to. A lower one measures more of what is of no use."""
_FEW = 100
"""Candidates whose own scores count. Of many, each would have to meet dozens of inputs."""
_ROUNDING = 1e-9
_TINY = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FrontCandidate:
    """Estimates of candidates, shape (C,) each."""

    mean: FloatArray  # mu
    variance: FloatArray  # v
    least_cost: FloatArray  # US dollars per hour, as those of plans
    allowed: FloatArray  # chance that a deployment meets the SLOs of latency and cost
    unknown: BoolArray  # whether more can be measured
    met: FloatArray  # n
    scored: FloatArray  # S
    population: int  # N


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Openness:
    """What is not known of the front."""

    undecided: BoolArray  # candidates that may belong to it, or may not, (C,)
    worth: FloatArray  # what measuring more of each would show, in [0, 1], 0: nothing, (C,)


def openness(
    known: FrontCandidate,
    plans: Sequence[Plan],
    costs: Sequence[float],  # of the plans
    rows: Sequence[int],  # candidates that the plans are of
    accuracy: float,  # A
) -> Openness:
    """Return which part of the front is open, and which measurements would decide it."""
    of, mean, variance = np.array(rows, dtype=np.int64), known.mean.copy(), known.variance.copy()
    members, allowed = np.zeros(len(mean), dtype=np.bool_), known.allowed.copy()
    least = known.least_cost.copy()
    z = 2 * float(ndtri((1 + CONFIDENCE) / 2))
    for row, plan, cost in reversed(list(zip(rows, plans, costs, strict=True))):
        mean[row] = plan.accuracy.value
        variance[row] = ((plan.accuracy.high - plan.accuracy.low) / z) ** 2
        members[row], allowed[row], least[row] = True, 1.0, cost  # the cheapest of a row is last
    above, rival = _ahead(mean, variance, least, of, np.array(costs))
    has_rival = rival >= 0
    spread = np.where(has_rival, np.sqrt(variance[rival]), 0.0)
    beats = np.where(has_rival, mean[rival], -inf)
    enough = ndtr((mean - accuracy) / np.sqrt(variance + _TINY))
    chance = allowed * np.minimum(enough, ndtr(above))
    may = sure = chance
    if len(mean) <= _FEW:
        may = np.maximum(chance, allowed * _own(known, np.maximum(beats - spread, accuracy)))
        sure = np.minimum(chance, allowed * _own(known, np.maximum(beats + spread, accuracy)))
    rival_open = has_rival & known.unknown[rival]
    undecided = (may > HARDLY) & np.where(
        members, (sure < 1 - HARDLY) & has_rival & (known.unknown | rival_open), known.unknown
    )
    worth = np.where(members, np.minimum(may, 1 - sure), may) * (undecided & known.unknown)
    for row in np.flatnonzero(undecided & rival_open).tolist():  # either of both would decide
        worth[rival[row]] = max(worth[rival[row]], min(may[row], 1 - sure[row]))
    return Openness(undecided=undecided, worth=worth)


def _own(known: FrontCandidate, bound: FloatArray) -> FloatArray:
    """Return the chance, by their own scores, that accuracies are above a bound, shape (C,)."""
    n, left = known.met, np.maximum(known.population - known.met, _TINY)
    needed = np.clip((bound * known.population - known.scored) / left, 0.0, 1.0)
    return np.asarray(betaincc(known.scored + 1, n - known.scored + 1, needed))


def _ahead(
    mean: FloatArray,  # (C,)
    variance: FloatArray,  # (C,)
    least: FloatArray,  # cost, (C,)
    rows: IndexArray,  # (P,)
    costs: FloatArray,  # (P,)
) -> tuple[FloatArray, IndexArray]:
    """Return by how many deviations each is ahead of its rival, and that one's row; -1: none."""
    if not len(rows):
        return np.full(len(mean), inf), np.full(len(mean), -1)
    cheap = costs[None, :] <= least[:, None] * (1 + _ROUNDING)
    rivals = np.where(cheap & (rows[None, :] != np.arange(len(mean))[:, None]), mean[rows], -inf)
    best = rivals.argmax(axis=1)
    there = rivals[np.arange(len(mean)), best] > -inf
    of = rows[best]
    ahead = (mean - mean[of]) / np.sqrt(variance + variance[of] + _TINY)
    return np.where(there, ahead, inf), np.where(there, of, -1)
