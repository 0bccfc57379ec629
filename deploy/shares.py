"""How a share of a machine is enforced: one machine of a local tier is one CPU core.

Where cgroups permit, the kernel gives an instance `share` seconds of CPU per second.
Else, and for batched operators (whose share does not mean CPU time but a place in a
batch), the worker waits after each operator: a duty cycle.

| symbol | meaning |
| --- | --- |
| t | seconds an operator just took, CPU seconds it used: c |
| r, v | share of the core, speed put on by waiting |
| s(r) | how many times as long the share makes it: 1/r, or the batch-latency curve |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from pipelines import checks
from pipelines.latency import stretch_of
from pipelines.operators import OperatorSpec, Scaling


class Enforcement(StrEnum):
    """What makes an instance keep to its share."""

    NONE = "none needed"
    """It has the whole machine."""
    CGROUP = "cgroup"
    """A CPU quota of the kernel."""
    DUTY_CYCLE = "duty cycle"
    """The worker waits after each operator."""


def enforcement_for(
    operators: Sequence[OperatorSpec], share: float, *, cgroups: bool
) -> Enforcement:
    """Give how a share is to be enforced.

    Args:
        operators: What the instance runs.
        share: Of one machine, in (0, 1].
        cgroups: Whether this computer lets us set CPU quotas.
    """
    if share == 1:
        return Enforcement.NONE
    batched = any(operator.scaling is Scaling.BATCHED for operator in operators)
    return Enforcement.CGROUP if cgroups and not batched else Enforcement.DUTY_CYCLE


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How long a worker waits after an operator.

    Attributes:
        enforcement: Of the share.
        share: r, in (0, 1].
        speed: v, in (0, 1].
    """

    enforcement: Enforcement = Enforcement.NONE
    share: float = 1.0
    speed: float = 1.0

    def __post_init__(self) -> None:
        checks.share("share", self.share)
        checks.share("speed", self.speed)

    def wait_s(self, operator: OperatorSpec, elapsed_s: float, cpu_s: float) -> float:
        """Give the seconds to wait, `>= 0`.

        Args:
            operator: What ran.
            elapsed_s: t, wall clock.
            cpu_s: c, of the thread that ran it (numeric libraries have one each).
        """
        return self._at_share(operator, elapsed_s, cpu_s) / self.speed - elapsed_s

    def _at_share(self, operator: OperatorSpec, elapsed_s: float, cpu_s: float) -> float:
        if self.enforcement is Enforcement.DUTY_CYCLE:
            return elapsed_s * float(stretch_of(operator, np.array([self.share]))[0])
        if self.enforcement is Enforcement.CGROUP:
            # A quota lets each period's first slice through at full speed: what an operator
            # gains by that is waited off, so that short ones keep to the share too.
            return max(elapsed_s, cpu_s / self.share)
        return elapsed_s
