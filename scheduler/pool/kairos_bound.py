"""The rate of a pool in closed form (Kairos 5.2, equations 9 to 15), and the choice by it.

| symbol | meaning | shape |
| --- | --- | --- |
| P, n | pools, auxiliary types | |
| u | base instances of each pool | (P,) |
| v | auxiliary instances of each pool and type | (P, n) |
| s^i | size at which an auxiliary type begins to be late | |
| f^i | share of the requests below s^i | (n,) |
| Q_b | rate of a base instance alone, all requests | |
| Q_b^{s+} | its rate with requests of s^i and more | (n,) |
| Q_a | rate of an instance of each type with requests below s^j, of each j | (n, n) |
| ' | of the type with the largest f^i of which a pool has instances | |

    C = (1 - f') / f' sum_i v^i Q_a^i                                                 (eq. 14)
    QPS_max = u Q_b^{s+} / (1 - f')                            if u Q_b^{s+} <= C     (eq. 15)
            = sum_i v^i Q_a^i / f' + (u Q_b^{s+} - C) / (u Q_b^{s+}) u Q_b   otherwise

With one auxiliary type that is equations 12 and 13, with one instance of both 9 and 11 with the
slack of equation 10. The paper calls it an upper bound, and it is none: base instances with slack
serve the small requests that are dear elsewhere, and 1 % may be late. The published dispatcher
exceeds it, too (wnd, pool (4, 8, 0, 0)). `scheduler.pool.throughput_bounds` is one.

The maximum f' is over the types that a pool has: the paper's "auxiliary instance types", which
leaves open whether v^i = 0 counts. The authors' profile has Q_a for the s of every type, which
only this reading needs, and only it gives their choices (on mtwnd).

Deviations: where the formula divides by 0 its limit is taken (f' = 0 or no auxiliary instance:
only the base counts; f' = 1: large requests do not occur).

The published choice tries no pool. If the three highest have alike many base instances the
highest is taken. Otherwise, of the ten highest, the one whose squared distances to the other nine
add up to the least: the middle of the region where rates are high. Of equals the one with the
higher bound, then the first.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from circinus.pipelines import checks
from circinus.pipelines.model.profile import FloatArray, IntArray
from circinus.scheduler.pool.search import Pool
from circinus.scheduler.pool.throughput_bounds import check_bound_input


@dataclass(frozen=True, slots=True, kw_only=True)
class KairosFigures:
    """What the closed form knows of a model; rates per second."""

    base_rps: float  # Q_b, `> 0`
    base_large_rps: FloatArray  # (n,), Q_b^{s+}, `> 0`; not used where `small` is 1
    small: FloatArray  # (n,), f, in [0, 1]
    # Q_a, `>= 0`; row j: of each type, with the requests that are in time on type j
    auxiliary_rps: FloatArray  # (n, n)

    def __post_init__(self) -> None:
        checks.positive("base_rps", self.base_rps)
        count = len(self.small)
        shapes = (self.base_large_rps.shape, self.auxiliary_rps.shape)
        checks.require(shapes == ((count,), (count, count)), "shapes", "must agree", shapes)
        for name in ("base_large_rps", "auxiliary_rps"):
            numbers = getattr(self, name)
            good = bool(((numbers >= 0) & np.isfinite(numbers)).all())
            checks.require(good, name, "must be finite and >= 0", numbers)
        good = bool(((self.small >= 0) & (self.small <= 1)).all())
        checks.require(good, "small", "must be in [0, 1]", self.small)


def kairos_bounds(figures: KairosFigures, pools: IntArray) -> FloatArray:  # (P,)
    """Return equation 15 for each pool, (P, 1 + n), counts of the base type first.

    InvalidInput if the number of types differs.
    """
    kinds = 1 + len(figures.small)
    checks.require(pools.shape[-1] == kinds, "pools", f"must have {kinds} types", pools.shape)
    base, there = pools[:, 0] * figures.base_rps, pools[:, 1:] > 0
    bounds = base.astype(np.float64)
    for j, small in enumerate(figures.small.tolist()):
        # deviates: largest-share-of-the-pool
        widest = there[:, j] & ~there[:, figures.small > small].any(axis=1)
        if small > 0 and widest.any():
            bounds[widest] = _of_one_size(figures, j, pools[widest])
    return bounds


def _of_one_size(figures: KairosFigures, j: int, pools: IntArray) -> FloatArray:
    """Return equation 15 for pools whose s is that of type j; f' is not 0."""
    small, base = float(figures.small[j]), pools[:, 0] * figures.base_rps
    auxiliary = pools[:, 1:] @ figures.auxiliary_rps[j]
    # deviates: limits-of-equation-15
    if small == 1:
        return np.asarray(auxiliary + base)
    large = pools[:, 0] * figures.base_large_rps[j]
    offloaded = auxiliary * (1 - small) / small  # C
    slack = np.divide(large - offloaded, large, out=np.zeros_like(large), where=large > 0)
    bottleneck = large <= offloaded
    return np.asarray(np.where(bottleneck, large / (1 - small), auxiliary / small + slack * base))


def kairos_figures(
    share: FloatArray,  # (B,), of each size among the requests, adds up to 1
    latency_s: FloatArray,  # (B, K), mean seconds, sizes rising, kind 0 the base; `> 0`
    qos_s: float,  # `> 0`
) -> KairosFigures:
    """Return the figures of measured latencies and a mix of sizes.

    A type's requests in time are the sizes below the first that is late there, as the authors'
    profile has them. InvalidInput if the base type is late with a size that occurs, besides what
    `throughput_bound` refuses.
    """
    check_bound_input(share, latency_s, np.zeros(latency_s.shape[-1], np.int64), qos_s, 1.0)
    occurs = share > 0
    share, latency_s = share[occurs] / share.sum(), latency_s[occurs]
    late = latency_s > qos_s
    rule = f"must be at most {qos_s:g} s for every size that occurs, as equation 15 assumes"
    # deviates: base-in-time
    slowest_s = float(latency_s[:, 0].max())
    checks.require(not late[:, 0].any(), "latency of the base type", rule, slowest_s)
    # deviates: below-the-first-late
    first = np.where(late.any(axis=0), late.argmax(axis=0), len(share))[1:]  # (n,)
    below = np.arange(len(share)) < first[:, None]  # (n, B)
    seconds = np.where(below[:, :, None], latency_s[None, :, 1:], 0.0)  # (n, B, n)
    busy_s = np.einsum("b,jbi->ji", share, seconds)  # of each type, by requests below s^j
    base_s = (~below * share) @ latency_s[:, 0]
    small, some = np.minimum(below @ share, 1.0), np.isfinite(busy_s) & (busy_s > 0)
    large = (~below).any(axis=1)
    small = np.where(large, small, 1.0)
    return KairosFigures(
        base_rps=1.0 / float(share @ latency_s[:, 0]),
        base_large_rps=np.where(large, 1 - small, 1.0) / np.where(large, base_s, 1.0),
        small=small,
        auxiliary_rps=np.where(some, small[:, None] / np.where(some, busy_s, 1.0), 0.0),
    )


_AGREEING, _REGION = 3, 10


class OneShotRule(StrEnum):
    """Which of the two rules chose."""

    HIGHEST = "the three highest bounds agree on the base type's count: the highest"
    NEAREST = "the three highest bounds differ in the base type's count: the middle of ten"


class OneShot(NamedTuple):
    """A pool and what chose it."""

    pool: Pool
    rule: OneShotRule


def one_shot(pools: IntArray, bounds: FloatArray) -> OneShot:
    """Choose among pools within a budget, (P, K), by bounds on their rates, (P,).

    Type 0 is the base. InvalidInput if there is no pool.
    """
    checks.require(len(pools) > 0, "pools", "must not be empty", "none")
    # deviates: one-shot-ties
    highest = pools[np.argsort(-bounds, kind="stable")[:_REGION]]
    if len(set(highest[:_AGREEING, 0].tolist())) == 1:
        return OneShot(tuple(highest[0].tolist()), OneShotRule.HIGHEST)
    apart = ((highest[:, None] - highest[None]) ** 2).sum(axis=(1, 2))
    return OneShot(tuple(highest[apart.argmin()].tolist()), OneShotRule.NEAREST)
