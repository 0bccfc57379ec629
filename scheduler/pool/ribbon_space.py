"""Which types to choose from, and how many of each at most (Ribbon, sections 3.3 and 4).

| symbol | meaning | shape |
| --- | --- | --- |
| B, K | sizes of requests, types of instance | |
| w | share of the requests of each size | (B,) |
| t | seconds of each size on each type | (B, K) |
| p | price of an instance of each type, USD per hour | (K,) |
| m | most instances of each type | (K,) |

`EarlyEnd` stops trials of pools that violate (section 5.5).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import floor

import numpy as np

from circinus.pipelines import checks
from circinus.pipelines.model.profile import BoolArray, FloatArray, IntArray
from circinus.scheduler.pool.search import Pool, PoolTrial

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
        actual = self.latency_s.shape
        checks.require(actual == shape, "latency_s", f"must have shape {shape}", actual)
        for name, values in (("latency_s", self.latency_s), ("prices", self.prices)):
            checks.require(bool((values > 0).all()), name, "must be > 0", values.min(initial=1.0))

    @property
    def requests_per_usd(self) -> FloatArray:  # (K,)
        """Return how many requests an instance of each serves for a dollar (equation 1)."""
        return np.asarray(3600.0 / (self.share @ self.latency_s) / self.prices)

    # deviates: types-by-profile
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
        others = np.flatnonzero(within(qos_s * (1.0 + relaxed)) & (value > value[base])).tolist()
        return [base, *sorted(others, key=lambda k: -float(value[k]))][:MOST_TYPES]


def most_useful(
    in_time: Callable[[Pool], float],
    kinds: int,
    limit: int,
    tolerance: float = 0.005,
    highest: Sequence[float] = (),  # (K,), shares that no count exceeds; empty: 1 of each
    target: float = 0.0,  # a share that is asked for: what misses it does not equal what has it
) -> Pool:
    """Return m: the least count of each type, alone, on which more do not improve.

    `in_time` returns the share in time of a pool, measured or simulated; it is called for 1 to
    `limit` instances of each type, up to the first that reaches the highest share. The paper stops
    at the first count that one more does not better; a few slow instances serve nobody in time,
    and neither does one more, so all are looked at here.
    Shares that differ by no more than the tolerance are equal.
    """
    checks.at_least("kinds", kinds, 1)
    checks.at_least("limit", limit, 1)
    checks.non_negative("tolerance", tolerance)
    counts = []
    for k, most in enumerate(highest or (1.0,) * kinds):
        shares: list[float] = []
        while len(shares) < limit and max(shares, default=-1.0) < most:
            shares.append(in_time((0,) * k + (len(shares) + 1,) + (0,) * (kinds - k - 1)))
        # deviates: counts-looked-through
        least = max(max(shares) - tolerance, min(target, max(shares)))
        equal = np.array(shares) >= least
        counts.append(1 + int(equal.argmax()))
    return tuple(counts)


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyEnd:
    """Ends a trial when the queue is too long, or when too many are late for all that may come.

    The queue is the paper's rule, and a guess: a burst may end. The late are certain.
    """

    longest_queue: int | None  # requests that wait, `>= 0`; None: it may be any length
    in_time: float = 0.99  # target share, in (0, 1]

    def __post_init__(self) -> None:
        checks.at_least("longest_queue", self.longest_queue, 0)
        checks.share("in_time", self.in_time)

    def trial(
        self,
        pool: Pool,
        waiting: IntArray,  # (N,), N >= 1; that wait as each request comes
        in_time: BoolArray,  # (N,); whether each was in time
    ) -> tuple[PoolTrial, int]:
        """Return the trial of so many requests, and after how many of them it ends.

        What ended early has the share of its part as its value. InvalidInput if shapes disagree.
        """
        count = len(in_time)
        shape = (max(count, 1),)
        checks.require(waiting.shape == shape, "waiting", f"must have shape {shape}", waiting)
        # rounded: 10,000 requests less 0.99 of them are 99.999... in floats
        # deviates: late-end-a-trial
        lost = np.cumsum(~in_time) > floor(round(count * (1.0 - self.in_time), 6))
        if self.longest_queue is not None:
            lost |= waiting > self.longest_queue
        if not lost.any():
            return PoolTrial(pool, float(in_time.mean())), count
        until = int(lost.argmax()) + 1
        share = float(in_time[:until].mean())
        ended_early = until < count or share >= self.in_time
        return PoolTrial(pool, share, ended_early=ended_early), until
