"""When a trial need not go on, because the pool violates (Ribbon, section 5.5)."""

from __future__ import annotations

from dataclasses import dataclass
from math import floor

import numpy as np

from circinus.pipelines import checks
from circinus.pipelines.model.profile import BoolArray, IntArray
from circinus.scheduler.pool.pools import Pool, PoolTrial


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
        lost = np.cumsum(~in_time) > floor(round(count * (1.0 - self.in_time), 6))
        if self.longest_queue is not None:
            lost |= waiting > self.longest_queue
        if not lost.any():
            return PoolTrial(pool, float(in_time.mean())), count
        until = int(lost.argmax()) + 1
        share = float(in_time[:until].mean())
        ended_early = until < count or share >= self.in_time
        return PoolTrial(pool, share, ended_early=ended_early), until
