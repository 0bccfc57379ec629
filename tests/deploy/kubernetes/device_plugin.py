"""A model of NVIDIA's device plug-in for Kubernetes on one node, after its documentation.

What it is after (README of the plug-in, "Shared Access to GPUs"; "MIG Support in Kubernetes"; the
MPS documentation on `CUDA_MPS_ACTIVE_THREAD_PERCENTAGE`):

- Resources are whole numbers. A GPU is handed out once, a shared one `replicas` times, from those
  of which least is handed out. `renameByDefault` offers shared ones as `.shared`.
- MIG devices are offered as `nvidia.com/gpu` (strategy single) or by profile (mixed); a process
  sees one of them, however many its container has.
- With time slicing a client that has several replicas has no more time for it, and with
  `failRequestsGreaterThanOne` is refused; all processes on a GPU take turns of equal length.
- With MPS more than one is refused, whatever the configuration says. A client has at most 1 /
  replicas of the memory and 100 / replicas percent of the threads, rounded down; a figure of its
  own only lowers that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

THREADS = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"


class NotAdmittedError(Exception):
    """The pod does not run there."""


@dataclass(frozen=True, kw_only=True)
class PluginConfiguration:
    """What the plug-in of a node is told, and what it finds there."""

    gpus: int  # of the node
    mig: str | None = None  # profile of all devices; None: MIG is off
    devices: int = 1  # MIG devices of each GPU
    mig_strategy: str = "mixed"  # or single
    sharing: str | None = None  # `timeSlicing` or `mps`; None: not shared
    replicas: int = 1
    rename_by_default: bool = False
    fail_requests_greater_than_one: bool = False

    @property
    def resource(self) -> str:
        """What the node offers them as."""
        own = "gpu" if self.mig is None or self.mig_strategy == "single" else f"mig-{self.mig}"
        return f"nvidia.com/{own}" + (".shared" if self.rename_by_default else "")

    @property
    def physical(self) -> int:
        """GPUs, or MIG devices."""
        return self.gpus * self.devices


@dataclass(frozen=True)
class Client:
    """What a container has of its node's GPUs, in parts of all of them."""

    compute: Fraction  # at least, whatever others do
    memory: Fraction  # likewise; 0: it is not divided
    promised: bool  # whether the plug-in or the hardware sees to that


@dataclass
class GpuNode:
    """A node's GPUs, and what is left of them."""

    configuration: PluginConfiguration
    left: list[int] = field(init=False)  # replicas of each

    def __post_init__(self) -> None:
        self.left = [self.configuration.replicas] * self.configuration.physical

    def admit(self, resource: str, number: int, env: Mapping[str, str]) -> Client:
        """Return what a container gets that asks for so many; NotAdmittedError: nothing."""
        has = self.configuration
        if resource != has.resource or number > sum(self.left):
            raise NotAdmittedError(f"Insufficient {resource}")
        refused = has.sharing == "mps" or has.fail_requests_greater_than_one
        if has.sharing and number > 1 and refused:
            raise NotAdmittedError("maximum request size for shared resources is 1")
        for _ in range(number):
            self.left[self.left.index(max(self.left))] -= 1
        each = Fraction(1, has.physical)
        if has.sharing == "mps":
            percent = min(100 // has.replicas, int(env.get(THREADS, 100)))
            return Client(each * Fraction(percent, 100), each / has.replicas, promised=True)
        if has.sharing == "timeSlicing":
            return Client(each / has.replicas, Fraction(0), promised=False)
        seen = 1 if has.mig else number
        return Client(each * seen, each * seen, promised=True)
