"""How a share of a machine is enforced: one machine of a local tier is one CPU core.

Where cgroups permit, the kernel gives an instance `share` seconds of CPU per second.
Else, and for batched operators (whose share does not mean CPU time but a place in a
batch), the worker waits after the operators of a call: a duty cycle.

| symbol | meaning |
| --- | --- |
| t | seconds an operator just took, CPU seconds it used: c, without a processor: l |
| r, v | share of the core, speed put on by waiting |
| s(r) | how many times as long the share makes it: 1/r, or the batch-latency curve |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from circinus.pipelines import checks
from circinus.pipelines.latency import stretch_of
from circinus.pipelines.operators import OperatorSpec, Scaling


class Enforcement(StrEnum):
    """What makes an instance keep to its share."""

    NONE = "none needed"  # it has the whole machine
    CGROUP = "cgroup"  # a CPU quota of the kernel
    DEVICE = "device"  # its part of a GPU, which gives no more
    DUTY_CYCLE = "duty cycle"  # the worker waits after the operators of a call


def enforcement_for(
    operators: Sequence[OperatorSpec], share: float, *, cgroups: bool, devices: bool = False
) -> Enforcement:
    """Give how operators' share of one machine is to be enforced.

    With `cgroups` quotas can be set; with `devices` the worker has a part of a GPU that gives it
    no more: to wait besides would take the share of the share.
    """
    if share == 1:
        return Enforcement.NONE
    if devices:
        return Enforcement.DEVICE
    batched = any(operator.scaling is Scaling.BATCHED for operator in operators)
    return Enforcement.CGROUP if cgroups and not batched else Enforcement.DUTY_CYCLE


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How fast a worker goes."""

    enforcement: Enforcement = Enforcement.NONE  # of the share
    share: float = 1.0  # r, in (0, 1]
    speed: float = 1.0  # v, in (0, 1]

    def __post_init__(self) -> None:
        checks.share("share", self.share)
        checks.share("speed", self.speed)


@dataclass(slots=True)
class ShareMeter:
    """What the operators of one call take at a worker's pace.

    They run one right after the other and the call waits once, at its end: an operator that runs
    after a pause finds cold caches, and a wait after each would charge for that again and again,
    which a machine that really is slower does not.
    """

    pace: Pace  # of the worker
    elapsed_s: float = 0.0  # sum of t so far
    _own_s: float = 0.0  # the same without l
    _cpu_s: float = 0.0
    _stretched_s: float = 0.0

    @property
    def due_s(self) -> float:
        """Seconds that what ran so far takes at the pace, `>= elapsed_s`."""
        at_share_s = self._own_s
        if self.pace.enforcement is Enforcement.DUTY_CYCLE:
            at_share_s = self._stretched_s
        elif self.pace.enforcement is Enforcement.CGROUP:
            # A quota lets each period's first slice through at full speed: what operators
            # gain by that is waited off, so that short ones keep to the share too.
            at_share_s = max(self.elapsed_s, self._cpu_s / self.pace.share)
        return max(at_share_s / self.pace.speed, self.elapsed_s)

    @property
    def wait_s(self) -> float:
        """Seconds still to wait, `>= 0`."""
        return self.due_s - self.elapsed_s

    def ran(
        self, operator: OperatorSpec, elapsed_s: float, cpu_s: float, lost_s: float = 0.0
    ) -> float:
        """Count an operator in and give the seconds that it takes at the pace, `>= 0`.

        t is of the wall clock; c of the thread that ran it (numeric libraries have one each) and
        of the programs that it called; l those of t in which others had the processor. A share
        that is kept by waiting is of what is the operator's own: to stretch l, too, would make a
        neighbour's millisecond 20 at a share of 0.05, and the wait makes up for it. Under a quota
        l is what the quota does.
        """
        before = self.due_s
        own_s = max(elapsed_s - lost_s, 0.0)
        self.elapsed_s += elapsed_s
        self._own_s += own_s
        self._cpu_s += cpu_s
        if self.pace.enforcement is Enforcement.DUTY_CYCLE:
            stretch = stretch_of(operator, np.array([self.pace.share]))
            self._stretched_s += own_s * float(stretch[0])
        return self.due_s - before
