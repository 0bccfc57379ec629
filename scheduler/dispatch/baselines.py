"""Published dispatch rules that Kairos compares itself with (section 7).

First come, first served and Clockwork come in two forms: as published, and rejecting what cannot
be served in time. With that overload is survived, so it is the harder one to beat; and Clockwork
itself does it, which the CLKWRK of the Kairos paper does not. Kairos itself is in
`scheduler.dispatch.matching`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import ClassVar

import numpy as np

from circinus.pipelines import checks
from circinus.scheduler.dispatch.kernel import (
    PLANNED,
    REJECT,
    Kernel,
    RuleInput,
    compiled,
    decided_by_rule,
)
from circinus.scheduler.dispatch.policy import FloatArray, IntArray


@compiled
def fcfs_rule(settings: FloatArray, inputs: RuleInput, answer: IntArray) -> None:
    """Start each request, oldest first, on the first idle instance that can serve it."""
    rejects = settings[0] > 0
    free = inputs.idle.copy()
    left = free.sum()
    for i in range(len(inputs.waited_s)):
        # Whatever any instance, idle or not, would take:
        if rejects and inputs.waited_s[i] + inputs.predicted_s[i].min() > inputs.qos_s[i]:
            answer[i] = REJECT
            continue
        if left == 0:
            if rejects:
                continue
            return
        for j in range(len(free)):
            # deviates: fcfs-lets-pass
            if free[j] and inputs.predicted_s[i, j] < inf:
                answer[i] = j
                free[j] = False
                left -= 1
                break


@dataclass(frozen=True, slots=True, kw_only=True)
class FcfsDispatch:
    """A `DispatchPolicy`: whoever has waited longest takes the first idle instance of the list.

    The list begins with the base type, as with Ribbon. Only a request that the idle instances
    cannot serve at all lets others pass.
    """

    # whether a request that no instance could serve in time, were it idle, is turned away; else
    # deadlines are not looked at
    rejects: bool = False
    sheds: ClassVar[bool] = False
    rule: ClassVar[Kernel] = staticmethod(fcfs_rule)
    level: ClassVar[float | None] = None
    plans_ahead: ClassVar[bool] = False

    decide = decided_by_rule


@compiled
def threshold_rule(settings: FloatArray, inputs: RuleInput, answer: IntArray) -> None:
    """Start each request, oldest first, on the first idle instance of its side."""
    largest_small = settings[0] * max(inputs.largest[0], inputs.size.max())
    free = inputs.idle.copy()
    left = free.sum()
    for i in range(len(inputs.waited_s)):
        if left == 0:
            return
        on_base = inputs.size[i] > largest_small
        if not (((inputs.kind == 0) == on_base) & (inputs.predicted_s[i] < inf)).any():
            # deviates: threshold-other-side
            on_base = not on_base
        for j in range(len(free)):
            if free[j] and (inputs.kind[j] == 0) == on_base and inputs.predicted_s[i, j] < inf:
                answer[i] = j
                free[j] = False
                left -= 1
                break


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeThreshold:
    """A `DispatchPolicy`: DeepRecSys' large requests to the base type, small ones to the others.

    First come, first served on either side. Deviations: the threshold is a fraction of the largest
    size until now, as sizes come in any unit; and where one side has no instances that can serve a
    request, it goes to the other, since it would never be served.
    """

    # deviates: drs-threshold
    # requests up to this part of the largest size go to the auxiliary types, in [0, 1]. A half
    # where nobody swept for the best, as `studies.dispatch.study` does
    fraction: float = 0.5
    rule: ClassVar[Kernel] = staticmethod(threshold_rule)
    level: ClassVar[float | None] = None
    plans_ahead: ClassVar[bool] = False
    rejects: ClassVar[bool] = False
    sheds: ClassVar[bool] = False

    def __post_init__(self) -> None:
        checks.probability("fraction", self.fraction)

    decide = decided_by_rule


@compiled
def clockwork_rule(settings: FloatArray, inputs: RuleInput, answer: IntArray) -> None:
    """Put each request without a queue into one; start the heads of queues."""
    rejects, xi = settings[0] > 0, settings[1]
    free_s = inputs.busy_s.copy()
    free = inputs.idle.copy()
    for i in range(len(inputs.waited_s)):
        j = inputs.planned[i]
        if j < 0 or j >= len(free) or inputs.predicted_s[i, j] == inf:
            # deviates: clockwork-done-first
            j = np.argmin(free_s + inputs.predicted_s[i])
            done = inputs.waited_s[i] + free_s[j] + inputs.predicted_s[i, j]
            if done == inf:
                continue
            if rejects and done > xi * inputs.qos_s[i]:
                answer[i] = REJECT
                continue
        answer[i] = j if free[j] else PLANNED - j
        free[j] = False
        free_s[j] += inputs.predicted_s[i, j]


@dataclass(frozen=True, slots=True, kw_only=True)
class Clockwork:
    """A `DispatchPolicy`: a queue per instance; each request joins the one where it is done first.

    It is put into a queue once, when it arrives, and stays there: `Decision.planned` carries the
    queues from one decision to the next.
    """

    # deviates: rejecting-variants
    # whether a request that would be late everywhere is turned away on arrival
    rejects: bool = False
    sheds: ClassVar[bool] = False
    xi: float = 1.0  # part of a deadline that may be planned with when rejecting, in (0, 1]
    rule: ClassVar[Kernel] = staticmethod(clockwork_rule)
    level: ClassVar[float | None] = None
    plans_ahead: ClassVar[bool] = True

    def __post_init__(self) -> None:
        checks.share("xi", self.xi)

    decide = decided_by_rule
