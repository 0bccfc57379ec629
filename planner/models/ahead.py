"""Estimates for future inputs of the same source, from measurements on N examples.

Examples are a sample of what will come, so that a figure which is exact on them is not on the
next ones. Inputs, and what operators do at random, are what the intervals are over.

| symbol | meaning |
| --- | --- |
| n, N | inputs measured, examples there are |
| m | mean of the n scores |
| alpha | 1 - confidence, shared by `_COMPARED` configurations |

A plan is picked because its scores are good, among configurations that met the same inputs and are
lucky together: few of them are independent. The interval of own scores is one that `_COMPARED`
picked from may have at once, by Bonferroni. Scores of 0 and 1 have the exact binomial interval
(Clopper and Pearson, 1934); other scores in [0, 1] a t-interval whose lower end counts one more
input that scored 0, and whose upper end one that scored 1: without it, scores that do not vary
would claim certainty. An interval that a search has drawn towards alike configurations, widened by
what N examples of the source may differ, is part of it: the two disagree about a lucky winner.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil, exp, floor, hypot, log, sqrt

import numpy as np
from scipy.special import betaincinv, ndtri, stdtrit

from circinus.pipelines.model.plan import Outlook
from circinus.pipelines.model.profile import FloatArray
from circinus.pipelines.model.slo import SURE, Estimate, LatencyStatistic, Slo, SloState
from circinus.planner.models.estimates import fraction_estimate

_COMPARED = 2.0
"""By simulation, of the first of 50 configurations whose 80 scores reach a bound: with 1, 2 and 4
the intervals hold the mean of 20,000 inputs in 97.3, 99.0 and 99.3 % of 400 draws where scores are
0 and 1 (97.7, 99.2, 99.7 % of others), and of those shown as met 98.8, 98.7 and 99.2 % are."""
_TAIL = (1 - SURE) / 2 / _COMPARED
MOST_EXAMPLES = 1_000_000  # that are looked for, and stand for the source itself
_ROUNDING = 1e-9  # of a fraction times N that is a whole number
_SLOW_PART = 0.25
"""Part of the inputs that may be much slower than all others: n of those show no mean. By
simulation, with this part 20 times as slow, intervals of 2, 4, 6, 8 and 10 inputs hold the mean in
44, 65, 83, 90 and 95 % of 1000 draws; where seconds vary smoothly more inputs change little."""


def accuracy_ahead(scores: FloatArray, known: Estimate, *, examples: int) -> Estimate:
    """Return the accuracy on future inputs, from n scores and what is known on N."""
    low, high = _own(scores, _TAIL)
    z = float(ndtri((1 + SURE) / 2))
    own = z * float(scores.std()) / sqrt(examples)
    low = min(low, known.value - sqrt((known.value - known.low) ** 2 + own**2))
    high = max(high, known.value + sqrt((known.high - known.value) ** 2 + own**2))
    left_out, inputs = known.left_out, len(scores)
    return fraction_estimate(
        known.value, low, high, confidence=SURE, inputs=inputs, left_out=left_out
    )


def accuracy_observed(scores: FloatArray) -> Estimate:
    """Return the accuracy of a plan not picked by these scores, (n,), n >= 1, in [0, 1]."""
    mean = float(scores.mean())
    low, high = _own(scores, (1 - SURE) / 2)
    return fraction_estimate(mean, low, high, confidence=SURE, inputs=len(scores))


def accuracy_needed(bound: float, examples: int) -> float | None:
    """Return the least fraction of N examples that shows `bound` ahead; None: none does."""
    if bound <= 0:
        return 0.0
    right = np.arange(examples + 1.0)
    good = np.flatnonzero(_binomial_low(right, examples) >= bound)
    return float(right[good[0]]) / examples if len(good) else None


def highest_bound(fraction: float, examples: int) -> float:
    """Return the highest bound of which `accuracy_needed` is at most that fraction."""
    return float(_binomial_low(floor(fraction * examples + _ROUNDING), examples))


def examples_needed(bound: float, expected: float) -> int | None:
    """Return the examples that would show `bound`, were `expected` right; None: too many."""
    fewest, most = 1, MOST_EXAMPLES
    if not expected > bound or _binomial_low(expected * most, most) < bound:
        return None
    while fewest < most:
        middle = (fewest + most) // 2
        if _binomial_low(expected * middle, middle) >= bound:
            most = middle
        else:
            fewest = middle + 1
    return most


def too_few(bound: float, examples: int) -> str:
    """Return in words that so many examples cannot show a bound, and how many could."""
    needed = examples_needed(bound, 1.0)
    more = "none would" if needed is None else f"{needed} would do, were all of them right"
    return f"{examples} examples are too few to show accuracy {bound:g} for future inputs: {more}"


def doubt(slo: Slo, examples: int) -> str | None:
    """Return in words why no plan on so many examples shows objectives ahead; None: some may."""
    if accuracy_needed(slo.accuracy, examples) is None:
        return too_few(slo.accuracy, examples)
    fewest, statistic = latency_examples(slo.latency_statistic), slo.latency_statistic
    if examples >= fewest:
        return None
    words = f"too few to show a {statistic} latency for future inputs: it takes {fewest} at least"
    return f"{examples} example{'s are' if examples > 1 else ' is'} {words}"


def latency_examples(statistic: LatencyStatistic) -> int:
    """Return how many inputs it takes at least to bound a latency ahead from above."""
    return ceil(log(1 - SURE) / log(statistic.quantile or 1 - _SLOW_PART))


def latency_sureness(statistic: LatencyStatistic, inputs: int) -> float:
    """Return the greatest confidence that so many inputs allow for in a measured mean."""
    return 1.0 if statistic.quantile else 1 - (1 - _SLOW_PART) ** inputs


def latency_served(latency: Estimate, within: float) -> Estimate:
    """Return a future latency where calibrations give the factor that served requests are off by.

    What inputs differ by and what settings do is taken to be independent.
    """
    if within == 1 or latency.value <= 0 or latency.low <= 0:
        return latency
    value, off = latency.value, log(within)
    below, above = hypot(log(value / latency.low), off), hypot(log(latency.high / value), off)
    return replace(latency, low=value * exp(-below), high=value * exp(above))


def would_show(ahead: Outlook, slo: Slo) -> int | None:
    """Return about how many examples would show accuracy and latency, were they as estimated.

    None: these do, no number would, or the number is unknown.
    """
    if ahead.accuracy.left_out:
        return None
    is_met = ahead.accuracy.at_least(slo.accuracy) is SloState.MET
    accurate = 0 if is_met else examples_needed(slo.accuracy, ahead.accuracy.value)
    if accurate is None or not ahead.latency_s.value <= slo.latency_s:
        return None
    fewest = latency_examples(slo.latency_statistic)
    return max(accurate, 0 if ahead.latency_s.inputs >= fewest else fewest) or None


def _own(scores: FloatArray, tail: float) -> tuple[float, float]:
    n = len(scores)
    if np.isin(scores, (0.0, 1.0)).all():
        right = float(scores.sum())
        return float(_binomial_low(right, n, tail)), 1 - float(_binomial_low(n - right, n, tail))
    ends = []
    for extreme in (0.0, 1.0):
        extended = np.append(scores, extreme)
        half = float(stdtrit(n, 1 - tail)) * float(extended.std(ddof=1)) / sqrt(n + 1)
        ends.append(float(extended.mean()) + (half if extreme else -half))
    return ends[0], ends[1]


def _binomial_low(right: FloatArray | float, n: int, tail: float = _TAIL) -> FloatArray:
    """Return the lower end for `right` of n; 0 when none is."""
    some = np.maximum(right, 1e-12)
    return np.where(np.asarray(right) > 0, betaincinv(some, n - some + 1, tail), 0.0)
