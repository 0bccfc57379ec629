"""First come, first served, the base type preferred: as Ribbon does (Kairos, section 7)."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import ClassVar

import numpy as np

from scheduler.dispatch.kernel import REJECT, Kernel, compiled, decide
from scheduler.dispatch.policy import (
    BoolArray,
    Decision,
    DispatchState,
    FloatArray,
    IntArray,
)


@compiled
def fcfs_rule(
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
    """Start each request, oldest first, on the first idle instance that can serve it."""
    free = idle.copy()
    left = free.sum()
    for i in range(len(waited_s)):
        if settings[0] > 0:
            least = inf  # of what any instance, idle or not, would take
            for j in range(len(free)):
                least = min(least, predicted_s[i, j])
            if waited_s[i] + least > qos_s[i]:
                answer[i] = REJECT
                continue
        if left == 0:
            if settings[0] > 0:
                continue
            return
        for j in range(len(free)):
            if free[j] and predicted_s[i, j] < inf:
                answer[i] = j
                free[j] = False
                left -= 1
                break


@dataclass(frozen=True, slots=True, kw_only=True)
class Fcfs:
    """A `DispatchPolicy`: whoever has waited longest takes the first idle instance of the list.

    Only a request that the idle instances cannot serve at all lets others pass.

    Attributes:
        rejects: Whether a request that no instance could serve in time, were it idle, is turned
            away; else deadlines are not looked at. (The variant with which overload is survived,
            harder to beat than the published one.)
    """

    rejects: bool = False
    level: ClassVar[float | None] = None
    plans_ahead: ClassVar[bool] = False

    @property
    def rule(self) -> Kernel:
        """Give the compiled rule."""
        return fcfs_rule

    @property
    def settings(self) -> FloatArray:
        """Give 1 if requests are rejected, else 0."""
        return np.array([float(self.rejects)])

    def decide(self, state: DispatchState) -> Decision:
        """Give what starts now, see `DispatchPolicy`."""
        return decide(fcfs_rule, self.settings, state)
