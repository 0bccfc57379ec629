"""The chance that more inputs will show what is hoped, and what finding out costs on average.

A value is known with variance v and will be known with v2 < v once more inputs are met:
its mean then moves by a normal step of variance v - v2, whatever the truth. It is shown
when the mean then lies z sqrt(v2) above the bound.

Nobody has to go all the way: after a first few inputs (variance v1 in between) whatever
looks bad is left. So the cost that counts is c1 + Pr[gone on with] c2, and what is
uncertain but cheap to drop is worth more than its whole way would say: the index of
Weitzman and Gittins with two stages.

| symbol | meaning |
| --- | --- |
| ahead | mean minus the bound |
| v, v1, v2 | variance now, after the first inputs, after all |
| a, b | sqrt(v - v1), sqrt(v1 - v2): how far the mean moves in either stage |
| T | what the mean must reach, minus the mean now |
"""

from __future__ import annotations

import numpy as np
from scipy.special import log_ndtr, ndtr, ndtri

from pipelines.configuration import IndexArray
from pipelines.profile import FloatArray

_TINY = 1e-12
_SLACKS = (0.0, 1.0)  # deviations b below T at which one still goes on: the better one counts
_POINTS = (np.arange(4) + 0.5) / 4  # of the part gone on with, where the second stage is averaged


def targets(minimum: int, population: int) -> IndexArray:
    """Give numbers of inputs to look ahead to: `minimum`, then about half as many again."""
    found = [min(minimum, population)]
    while found[-1] < population:
        found.append(min(int(found[-1] * 1.6) + 1, population))
    return np.array(found)


def log_shown(ahead: FloatArray, now: FloatArray, then: FloatArray, z: float) -> FloatArray:
    """Give log Pr[still z deviations ahead], variance falling from `now` to `then`."""
    moves = np.sqrt(np.maximum(now - then, _TINY))
    return np.asarray(log_ndtr((ahead - z * np.sqrt(then)) / moves))


def log_index(  # noqa: PLR0913 - three variances and two costs
    ahead: FloatArray,
    now: FloatArray,
    soon: FloatArray,
    then: FloatArray,
    z: float,
    *,
    first_cost: FloatArray,
    rest_cost: FloatArray,
) -> FloatArray:
    """Give log(chance that it is shown / mean cost), leaving after the first inputs if bad.

    Args:
        ahead: Mean minus the bound; all shapes must broadcast.
        now: v.
        soon: v1, in [v2, v].
        then: v2.
        z: Deviations.
        first_cost: c1 of the first inputs, `> 0`.
        rest_cost: c2 of the others, `>= 0`.
    """
    a = np.sqrt(np.maximum(now - soon, _TINY))
    b = np.sqrt(np.maximum(soon - then, _TINY))
    target = z * np.sqrt(then) - ahead
    best = log_shown(ahead, now, then, z) - np.log(first_cost + rest_cost)
    for slack in _SLACKS:
        on = ndtr((slack * b - target) / a)
        shown = np.zeros_like(on)
        for point in _POINTS:
            step = -ndtri(np.maximum(on * point, _TINY * _TINY))
            shown += ndtr((a * step - target) / b) / len(_POINTS)
        with np.errstate(divide="ignore"):
            value = np.log(on * shown) - np.log(first_cost + on * rest_cost)
        best = np.maximum(best, value)
    return np.asarray(best)
