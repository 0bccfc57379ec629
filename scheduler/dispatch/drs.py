"""Large requests to the base type, small ones to the others: DeepRecSys (Kairos, section 7)."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import ClassVar

import numpy as np

from pipelines import checks
from scheduler.dispatch.kernel import Kernel, compiled, compiled_part, decide
from scheduler.dispatch.policy import (
    BoolArray,
    Decision,
    DispatchState,
    FloatArray,
    IntArray,
)


@compiled_part
def _served_on(row: FloatArray, kind: IntArray, on_base: bool) -> bool:
    """Give whether a side has an instance that can serve the request."""
    for j in range(len(kind)):  # noqa: SIM110 - generators do not compile
        if (kind[j] == 0) == on_base and row[j] < inf:
            return True
    return False


@compiled
def threshold_rule(
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
    """Start each request, oldest first, on the first idle instance of its side."""
    free = idle.copy()
    left = free.sum()
    for i in range(len(waited_s)):
        if left == 0:
            return
        on_base = size[i] > settings[0]
        if not _served_on(predicted_s[i], kind, on_base):
            on_base = not on_base
        for j in range(len(free)):
            if free[j] and (kind[j] == 0) == on_base and predicted_s[i, j] < inf:
                answer[i] = j
                free[j] = False
                left -= 1
                break


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeThreshold:
    """A `DispatchPolicy`: first come, first served on either side of a size.

    Deviation: where one side has no instances that can serve a request, it goes to the other,
    since it would never be served.

    Attributes:
        largest_small: Requests up to this size go to the auxiliary types, `>= 0`. The study
            finds the best by a sweep.
    """

    largest_small: float
    level: ClassVar[float | None] = None
    plans_ahead: ClassVar[bool] = False
    rejects: ClassVar[bool] = False

    def __post_init__(self) -> None:
        checks.non_negative("largest_small", self.largest_small)

    @property
    def rule(self) -> Kernel:
        """Give the compiled rule."""
        return threshold_rule

    @property
    def settings(self) -> FloatArray:
        """Give the threshold."""
        return np.array([self.largest_small], dtype=np.float64)

    def decide(self, state: DispatchState) -> Decision:
        """Give what starts now, see `DispatchPolicy`."""
        return decide(threshold_rule, self.settings, state)
