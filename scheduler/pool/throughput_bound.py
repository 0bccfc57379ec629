"""An upper bound on the rate that a pool can serve in time, and what its instances are worth.

| symbol | meaning | shape |
| --- | --- | --- |
| B, K | sizes of request, kinds of instance | |
| q | share of each size among the requests | (B,) |
| L | seconds of each size on each kind | (B, K) |
| N | instances of each kind | (K,) |
| T | seconds within which a request should be answered | |
| g | share of the requests that must be in time | |
| R | rate of arrivals, per second | |
| x | rate of each size that each kind serves in time | (B, K) |
| p | dual prices of the busy time, relative to the base kind | (K,) |

    max R    x >= 0, x_bk = 0 where L_bk > T
    s.t.     sum_k x_bk <= q_b R           for every size b
             sum_bk x_bk >= g R
             sum_b L_bk x_bk <= N_k        for every kind k (busy seconds per second)

With g = 1 the first two say that every request is served. No dispatcher serves more in the long
run, whatever it knows of the future: it can keep an instance busy no longer than all the time,
and a request that is in time ran where L <= T. (A finite run may exceed the bound a little,
since requests are still served after the last arrival.) The closed form of Kairos 5.2, eq. 15,
is no bound: a good dispatcher exceeds it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_array, hstack, vstack

from circinus.pipelines import checks
from circinus.pipelines.model.profile import FloatArray, IntArray

_LEAST_PRICE = 1e-3
"""Of a kind whose time is worth nothing at the optimum: still not to be wasted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThroughputBound:
    """The optimum of the linear program."""

    rate_rps: float  # R; 0 if the requests cannot be served in time
    # p, `> 0`; kind 0 has 1 unless its time is worth less than a thousandth of the dearest
    # kind's. Kinds of which there is no instance get the price of a first one
    price: FloatArray  # (K,)


def throughput_bound(
    share: FloatArray,  # (B,), q, adds up to 1
    latency_s: FloatArray,  # (B, K), L, `> 0`; infinite where a kind cannot serve a size
    counts: IntArray,  # (K,), N, `>= 0`
    qos_s: float,  # T, `> 0`
    *,
    in_time: float = 1.0,  # g, in (0, 1]
) -> ThroughputBound:
    """Return bound and prices; InvalidInput if a number is out of its range or shapes differ."""
    check_bound_input(share, latency_s, counts, qos_s, in_time)
    able = latency_s <= qos_s
    sizes, kinds = np.nonzero(able)
    variables = len(sizes)
    places = np.arange(variables)
    ones = np.ones(variables)
    by_size = csr_array((ones, (sizes, places)), shape=(len(share), variables))
    busy = csr_array((latency_s[able], (kinds, places)), shape=(latency_s.shape[1], variables))
    served = csr_array(-ones[None, :])
    rate = np.concatenate([-share, [in_time], np.zeros(len(counts))])[:, None]
    left = hstack([vstack([by_size, served, busy]), csr_array(rate)], format="csr")
    right = np.concatenate([np.zeros(len(share) + 1), counts.astype(np.float64)])
    objective = np.zeros(variables + 1)
    objective[-1] = -1.0
    solved = linprog(objective, A_ub=left, b_ub=right, method="highs")
    dual = -np.asarray(solved.ineqlin.marginals)[len(share) + 1 :]
    highest = float(dual.max(initial=0.0))
    price = np.maximum(dual, _LEAST_PRICE * highest) if highest > 0 else np.ones(len(dual))
    # x = 0 is feasible and R is bounded by the instances: there always is an optimum.
    return ThroughputBound(rate_rps=-float(solved.fun or 0.0), price=price / price[:1])


def check_bound_input(
    share: FloatArray, latency_s: FloatArray, counts: IntArray, qos_s: float, in_time: float
) -> None:
    """Raise InvalidInput where a number is out of its range, or the kinds of `counts` differ."""
    shape, got = (len(share), counts.shape[-1]), latency_s.shape
    checks.require(got == shape, "latency_s", f"must have shape {shape}", got)
    checks.require(bool((latency_s > 0).all()), "latency_s", "must be > 0", latency_s.min())
    good = bool((share >= 0).all()) and abs(float(share.sum()) - 1.0) < 1e-6
    checks.require(good, "share", "must be >= 0 and add up to 1", share.sum())
    checks.require(bool((counts >= 0).all()), "counts", "must be >= 0", counts)
    checks.positive("qos_s", qos_s)
    checks.share("in_time", in_time)
