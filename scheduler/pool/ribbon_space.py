"""Which types to choose from, and how many of each at most (Ribbon, sections 3.3 and 4).

| symbol | meaning | shape |
| --- | --- | --- |
| B, K | sizes of requests, types of instance | |
| w | share of the requests of each size | (B,) |
| t | seconds of each size on each type | (B, K) |
| p | price of an instance of each type, USD per hour | (K,) |
| m | most instances of each type | (K,) |
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from circinus.pipelines import checks
from circinus.pipelines.model.profile import BoolArray, FloatArray
from circinus.scheduler.pool.pools import Pool

RELAXED = 0.3
"""By how much the QoS target is relaxed for a type to be of use: the paper's "about 30 %"."""
MOST_TYPES = 3
"""That a pool is made of: more hardly save more (figure 8)."""

_EQUAL = 1e-9  # shares in time that differ by less do not


@dataclass(frozen=True, kw_only=True)
class MeasuredTypes:
    """Types of instance and what requests take on them."""

    share: FloatArray  # w, adds up to 1
    latency_s: FloatArray  # t, `> 0`
    prices: FloatArray  # p, `> 0`

    def __post_init__(self) -> None:
        shape = (len(self.share), len(self.prices))
        got = self.latency_s.shape
        checks.require(got == shape, "latency_s", f"must have shape {shape}", got)
        for name, values in (("latency_s", self.latency_s), ("prices", self.prices)):
            checks.require(bool((values > 0).all()), name, "must be > 0", values.min(initial=1.0))

    @property
    def requests_per_usd(self) -> FloatArray:  # (K,)
        """Return how many requests an instance of each serves for a dollar (equation 1)."""
        return np.asarray(3600.0 / (self.share @ self.latency_s) / self.prices)

    def useful(
        self, qos_s: float, *, in_time: float = 0.99, relaxed: float = RELAXED
    ) -> list[int]:
        """Return places of types: the base, then those that serve more for a dollar, best first.

        The base serves the most for a dollar of those in time (3.2); the others have to be in time
        by the relaxed target. In time: enough requests alone and without a queue. InvalidInput if
        no type is.
        """
        checks.positive("qos_s", qos_s)
        checks.non_negative("relaxed", relaxed)
        value = self.requests_per_usd

        def within(target_s: float) -> BoolArray:
            return np.asarray(self.share @ (self.latency_s <= target_s) >= in_time - _EQUAL)

        strictly = np.flatnonzero(within(qos_s))
        rule = f"must be such that a type alone has {in_time:.0%} of the requests in time"
        checks.require(len(strictly) > 0, "qos_s", rule, qos_s)
        base = int(strictly[value[strictly].argmax()])
        found = np.flatnonzero(within(qos_s * (1.0 + relaxed)) & (value > value[base])).tolist()
        return [base, *sorted(found, key=lambda k: -float(value[k]))][:MOST_TYPES]


def most_useful(
    in_time: Callable[[Pool], float], kinds: int, limit: int, tolerance: float = 0.005
) -> Pool:
    """Return m: the least count of each type, alone, on which more do not improve.

    `in_time` gives the share in time of a pool, measured or simulated; it is asked for 1 to
    `limit` instances of each type. The paper stops at the first count that one more does not
    better; a few slow instances serve nobody in time, and neither does one more, so all are
    looked at here.
    Shares that differ by no more than the tolerance are equal.
    """
    checks.at_least("kinds", kinds, 1)
    checks.at_least("limit", limit, 1)
    checks.non_negative("tolerance", tolerance)
    found = []
    for k in range(kinds):
        alone = np.arange(1, limit + 1)[:, None] * np.eye(kinds, dtype=np.int64)[k]
        shares = np.array([in_time(tuple(pool)) for pool in alone.tolist()])
        found.append(1 + int((shares >= shares.max() - tolerance).argmax()))
    return tuple(found)
