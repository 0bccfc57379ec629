"""A queue per instance; each request joins the one where it is done first (Kairos, section 7).

A request is put into a queue once, when it arrives, and stays there: `Decision.planned`
carries the queues from one decision to the next. As Clockwork itself rejects what it cannot
serve in time, and the Kairos paper's CLKWRK does not, there are both.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import ClassVar

import numpy as np

from pipelines import checks
from scheduler.dispatch.kernel import PLANNED, REJECT, Kernel, compiled, compiled_part, decide
from scheduler.dispatch.policy import (
    BoolArray,
    Decision,
    DispatchState,
    FloatArray,
    IntArray,
)


@compiled_part
def _first_done(free_s: FloatArray, row: FloatArray) -> int:
    """Give the instance where a request would be done first."""
    best = 0
    for j in range(1, len(row)):
        if free_s[j] + row[j] < free_s[best] + row[best]:
            best = j
    return best


@compiled
def clockwork_rule(
    settings: FloatArray,
    waited_s: FloatArray,
    qos_s: FloatArray,
    size: FloatArray,
    planned: IntArray,
    predicted_s: FloatArray,
    busy_s: FloatArray,
    idle: BoolArray,
    kind: IntArray,
    coefficient: FloatArray,
    price: FloatArray,
    answer: IntArray,
) -> None:
    """Put each request without a queue into one; start the heads of queues."""
    free_s = busy_s.copy()
    free = idle.copy()
    for i in range(len(waited_s)):
        j = planned[i]
        if j < 0 or j >= len(free) or predicted_s[i, j] == inf:
            j = _first_done(free_s, predicted_s[i])
            done = waited_s[i] + free_s[j] + predicted_s[i, j]
            if done == inf:
                continue
            if settings[0] > 0 and done > settings[0] * qos_s[i]:
                answer[i] = REJECT
                continue
        answer[i] = j if free[j] else PLANNED - j
        free[j] = False
        free_s[j] += predicted_s[i, j]


@dataclass(frozen=True, slots=True, kw_only=True)
class Clockwork:
    """A `DispatchPolicy`: earliest predicted completion, decided on arrival.

    Attributes:
        rejects: Whether a request that would be late everywhere is turned away on arrival.
        xi: Part of a deadline that may be planned with when rejecting, in (0, 1].
    """

    rejects: bool = False
    xi: float = 1.0
    level: ClassVar[float | None] = None
    plans_ahead: ClassVar[bool] = True

    def __post_init__(self) -> None:
        checks.share("xi", self.xi)

    @property
    def rule(self) -> Kernel:
        """Give the compiled rule."""
        return clockwork_rule

    @property
    def settings(self) -> FloatArray:
        """Give xi, or 0 if nothing is rejected."""
        return np.array([self.xi if self.rejects else 0.0], dtype=np.float64)

    def decide(self, state: DispatchState) -> Decision:
        """Give what starts now, and the queues, see `DispatchPolicy`."""
        return decide(clockwork_rule, self.settings, state)
