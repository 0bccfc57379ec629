"""How many copies a request rate needs, and how long requests wait for them.

The operators of a plan on one tier form a group that serves one request at a time;
its copies are taken as an M/M/c queue.

| symbol | meaning |
| --- | --- |
| rate | requests per second |
| S | mean seconds that a request keeps a copy busy |
| c | copies |
| a = rate x S | offered load |
| rho = a / c | utilisation |

Service times vary less than exponential ones, so the waiting times here are on the
safe side.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln, pdtr

from circinus.pipelines.profile import FloatArray

HIGHEST_UTILISATION = 0.7
"""Copies are added until rho is at most this: beyond it waiting grows steeply with every burst."""

_ROUNDING = 1e-9  # a / 0.7 that is a whole number up to rounding asks for no further copy


def copies(
    rate: float, service_s: FloatArray, *, utilisation: float = HIGHEST_UTILISATION
) -> npt.NDArray[np.int64]:
    """Give the fewest copies with rho <= `utilisation`, at least 1, same shape."""
    needed = np.ceil(rate * service_s / utilisation - _ROUNDING)
    return np.asarray(np.maximum(needed, 1).astype(np.int64))


def waiting_probability(servers: npt.NDArray[np.int64], load: FloatArray) -> FloatArray:
    """Give the probability that a request has to wait (Erlang C), same shape.

    C = B / (1 - rho (1 - B)), with Erlang's loss B(c, a) = Poisson(a) probability of c over that
    of at most c: in this form neither a factorial nor a long sum can overflow. For c `>= 1` and a
    in [0, c).
    """
    safe = np.maximum(load, np.finfo(float).tiny)
    point = np.exp(servers * np.log(safe) - safe - gammaln(servers + 1.0))
    loss = point / pdtr(servers, safe)
    return np.asarray(loss / (1 - load / servers * (1 - loss)))


def mean_wait_s(rate: float, service_s: FloatArray, servers: npt.NDArray[np.int64]) -> FloatArray:
    """Give the mean seconds that requests wait: C S / (c - a), same shape."""
    load = rate * service_s
    return np.asarray(waiting_probability(servers, load) * service_s / (servers - load))


def quantile_wait_s(
    rate: float, service_s: FloatArray, servers: npt.NDArray[np.int64], quantile: float
) -> FloatArray:
    """Give the seconds that the fraction `quantile` of requests do not wait longer than.

    From Pr[W > t] = C exp(-(c - a) t / S); 0 where fewer than 1 - quantile wait at all.
    """
    load = rate * service_s
    tail = waiting_probability(servers, load) / (1 - quantile)
    log_tail = np.log(np.maximum(tail, 1.0))
    return np.asarray(log_tail * service_s / (servers - load))
