"""How a share of a machine is enforced: one machine of a local tier is one CPU core.

Where cgroups permit, the kernel gives an instance `share` seconds of CPU per second.
Else, and for batched operators (whose share does not mean CPU time but a place in a
batch), the worker waits after the operators of a call: a duty cycle.

| symbol | meaning |
| --- | --- |
| t | seconds an operator just took, CPU seconds it used: c, without a processor: l |
| w | seconds of t in which it waited for something else: a timer, a disk, a network |
| r, v | share of the core, speed put on by waiting |
| s(r) | how many times as long the share makes it: 1/r, or the batch-latency curve |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from circinus.pipelines import checks
from circinus.pipelines.model.latency import stretch_of
from circinus.pipelines.model.operators import OperatorSpec, Scaling


# deviates: enforced-by-workers
class Enforcement(StrEnum):
    """What makes an instance keep to its share."""

    NONE = "none needed"  # it has the whole machine
    CGROUP = "cgroup"  # a CPU quota of the kernel
    DEVICE = "device"  # its part of a GPU, which gives no more
    DUTY_CYCLE = "duty cycle"  # the worker waits after the operators of a call


def enforcement_for(
    operators: Sequence[OperatorSpec], share: float, *, cgroups: bool, devices: bool = False
) -> Enforcement:
    """Return how operators' share of one machine is to be enforced.

    With `cgroups` quotas can be set; with `devices` the worker has a part of a GPU that gives it
    no more: to wait besides would take the share of the share.
    """
    if share == 1:
        return Enforcement.NONE
    if devices:
        return Enforcement.DEVICE
    batched = any(operator.scaling is Scaling.BATCHED for operator in operators)
    return Enforcement.CGROUP if cgroups and not batched else Enforcement.DUTY_CYCLE


class ProcessorSeconds(NamedTuple):
    """What an operator used of processors."""

    thread_s: float = 0.0  # computed by the thread that ran it
    others_s: float = 0.0  # computed by other threads, and by programs that it called
    # in which that thread was ready and had no processor; None: the kernel does not report it
    lost_s: float | None = None

    @property
    def cpu_s(self) -> float:
        """What it computed in all, c."""
        return self.thread_s + self.others_s

    def since(self, before: ProcessorSeconds) -> ProcessorSeconds:
        """Return what was used after an earlier reading."""
        lost_s = None
        if self.lost_s is not None and before.lost_s is not None:
            lost_s = self.lost_s - before.lost_s
        thread_s, others_s = self.thread_s - before.thread_s, self.others_s - before.others_s
        return ProcessorSeconds(thread_s, max(others_s, 0.0), lost_s)

    def waited_s(self, elapsed_s: float, quota: float = 1.0) -> float:
        """Return w of so many seconds, `>= 0`; 0 where the kernel does not report it.

        Under a quota others may have had no processor meanwhile, which is not reported.
        """
        if self.lost_s is None:
            return 0.0
        return max(elapsed_s - self.lost_s - self.thread_s - self.others_s / quota, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How fast a worker goes."""

    enforcement: Enforcement = Enforcement.NONE  # of the share
    share: float = 1.0  # r, in (0, 1]
    speed: float = 1.0  # v, in (0, 1]
    devices: bool = False  # whether it has a GPU: what waits for one is work, too

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
    waited_s: float = 0.0  # sum of w
    _own_s: float = 0.0  # sum of t without l and w
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
            at_share_s = max(self.elapsed_s - self.waited_s, self._cpu_s / self.pace.share)
        return max(self.waited_s + at_share_s / self.pace.speed, self.elapsed_s)

    @property
    def wait_s(self) -> float:
        """Seconds still to wait, `>= 0`."""
        return self.due_s - self.elapsed_s

    def ran(self, operator: OperatorSpec, elapsed_s: float, used: ProcessorSeconds) -> float:
        """Count an operator in and return the seconds that it takes at the pace, `>= 0`.

        t is of the wall clock. A share that is kept by waiting is of what is the operator's own:
        to stretch l, too, would make a neighbour's millisecond 20 at a share of 0.05, and the wait
        makes up for it. Under a quota l is what the quota does. No share and no speed stretches w.
        """
        before = self.due_s
        waited_s = self._waited(operator, elapsed_s, used)
        # No less than it computed: a neighbour may come between two readings, and l has more then.
        computed_s = min(used.cpu_s, elapsed_s)
        own_s = max(elapsed_s - (used.lost_s or 0.0) - waited_s, computed_s)
        self.elapsed_s += elapsed_s
        self.waited_s += waited_s
        self._own_s += own_s
        self._cpu_s += used.cpu_s
        if self.pace.enforcement is Enforcement.DUTY_CYCLE:
            stretch = stretch_of(operator, np.array([self.pace.share]))
            self._stretched_s += own_s * float(stretch[0])
        return self.due_s - before

    def _waited(self, operator: OperatorSpec, elapsed_s: float, used: ProcessorSeconds) -> float:
        """Return w; 0 of what may have waited for a device, whose work that is."""
        if self.pace.devices or operator.scaling is Scaling.BATCHED:
            return 0.0
        quota = self.pace.share if self.pace.enforcement is Enforcement.CGROUP else 1.0
        return used.waited_s(elapsed_s, quota)
