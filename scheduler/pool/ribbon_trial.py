"""When a trial need not go on, because the pool violates (Ribbon, section 5.5)."""

from __future__ import annotations

from dataclasses import dataclass
from math import floor

import numpy as np

from circinus.pipelines import checks
from circinus.pipelines.profile import BoolArray, IntArray
from circinus.scheduler.pool.pools import Pool, PoolTrial


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyEnd:
    """Ends a trial when the queue is too long, or when too many are late for all that may come.

    The queue is the paper's rule, and a guess: a burst may end. The late are certain.
    """

    longest_queue: int | None  # requests that wait, `>= 0`; None: it may be any length
    requests: int  # that the trial has in all, `>= 1`
    in_time: float = 0.99  # target share, in (0, 1]

    def __post_init__(self) -> None:
        checks.at_least("longest_queue", self.longest_queue, 0)
        checks.at_least("requests", self.requests, 1)
        checks.share("in_time", self.in_time)

    def trial(
        self,
        pool: Pool,
        waiting: IntArray,  # (n,); that wait as each request comes, of the first n <= requests
        in_time: BoolArray,  # (n,); whether each was in time
    ) -> PoolTrial | None:
        """Give the trial; None: it has to go on. InvalidInput if shapes disagree or n is wrong.

        What ended early has the share of its part as its value.
        """
        n = len(waiting)
        checks.require(1 <= n <= self.requests, "waiting", f"must be 1 to {self.requests}", n)
        checks.require(in_time.shape == (n,), "in_time", f"must have shape ({n},)", in_time.shape)
        # rounded: 10,000 requests less 0.99 of them are 99.999... in floats
        allowed = floor(round(self.requests * (1.0 - self.in_time), 6))
        lost = np.cumsum(~in_time) > allowed
        if self.longest_queue is not None:
            lost |= waiting > self.longest_queue
        if lost.any():
            until = int(lost.argmax()) + 1
            share, early = float(in_time[:until].mean()), until < self.requests
            return PoolTrial(pool, share, ended_early=early or share >= self.in_time)
        return PoolTrial(pool, float(in_time.mean())) if n == self.requests else None
