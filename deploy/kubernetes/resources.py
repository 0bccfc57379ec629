"""What a share of a machine is in requests and limits: always rounded down.

So workers that together have a whole machine never ask for more than it has. Quantities are
written as the API server writes them back.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum

from circinus.pipelines import checks
from circinus.pipelines.errors import InvalidInput

GPU, SHARED_GPU = "nvidia.com/gpu", "nvidia.com/gpu.shared"

_FORM = re.compile(r"[+-]?[0-9.]+([eE][+-]?[0-9]+|[numkMGTPE]|[KMGTPE]i)?")


class DevicePolicy(StrEnum):
    """How a share of a machine's GPUs is asked for."""

    NONE = "none"  # not at all: workers use the CPU
    WHOLE = "whole"  # `nvidia.com/gpu`, in whole numbers; any other share is refused
    MPS = "mps"  # one client of `nvidia.com/gpu.shared`, limited to the share of the GPU's threads
    TIME_SLICED = "time-sliced"  # as many `nvidia.com/gpu.shared` as fit into the share


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineShape:
    """What one machine of a tier has for workers."""

    cpu: str = "1"  # quantity; a share of it is requested, and is the limit
    memory: str = "2Gi"  # quantity; a share of it is requested, all of it is the limit
    gpus: int = 0  # `>= 0`
    devices: DevicePolicy = DevicePolicy.NONE  # how they are asked for
    clients: int = 10  # parts of one GPU, with MPS or time slicing, `>= 1`

    def __post_init__(self) -> None:
        checks.require(quantity(self.cpu) > 0, "cpu", "must be > 0", self.cpu)
        checks.require(quantity(self.memory) > 0, "memory", "must be > 0", self.memory)
        checks.require(self.gpus >= 0, "gpus", "must be >= 0", self.gpus)
        checks.require(self.clients >= 1, "clients", "must be >= 1", self.clients)
        needed = self.devices is not DevicePolicy.NONE
        checks.require(self.gpus > 0 or not needed, "gpus", f"must be > 0 with {self.devices}", 0)

    def milli_cpu(self, share: float) -> int:
        """Give a share of its CPU in thousandths of a core."""
        return int(quantity(self.cpu) * 1000 * _part(share))

    def mebibytes(self, share: float) -> int:
        """Give a share of its memory."""
        return int(quantity(self.memory) / 2**20 * _part(share))

    def threads_percent(self, share: float) -> int | None:
        """Give the part of a GPU's threads that an MPS client may have; None: no limit."""
        return max(1, int(_part(share) * 100)) if self.devices is DevicePolicy.MPS else None

    def resources(self, share: float, tier: str) -> dict[str, dict[str, str]]:
        """Give `requests` and `limits`; InvalidInput if the devices of the tier cannot give it."""
        milli = self.milli_cpu(share)
        cpu = f"{milli}m" if milli % 1000 else f"{milli // 1000}"
        devices = self._devices(share, tier)
        return {
            "requests": {"cpu": cpu, "memory": self._memory(share), **devices},
            # What a worker needs in memory does not grow with its share of the time.
            "limits": {"cpu": cpu, "memory": self._memory(1.0), **devices},
        }

    def _memory(self, share: float) -> str:
        mebi = self.mebibytes(share)
        return f"{mebi // 1024}Gi" if mebi and mebi % 1024 == 0 else f"{mebi}Mi"

    def _devices(self, share: float, tier: str) -> dict[str, str]:
        if self.devices is DevicePolicy.NONE:
            return {}
        gpus = self.gpus * _part(share)
        if self.devices is DevicePolicy.WHOLE:
            rule = f"must be whole GPUs of the {self.gpus} (device policy whole)"
            checks.require(gpus == int(gpus), f"share on {tier}", rule, share)
            return {GPU: f"{int(gpus)}"}
        clients = int(gpus * self.clients)
        rule = f"must be at least 1/{self.clients} of a GPU (device policy {self.devices})"
        checks.require(clients >= 1, f"share on {tier}", rule, share)
        # The device plugin gives an MPS client one part; how much of it, the threads say.
        return {SHARED_GPU: "1" if self.devices is DevicePolicy.MPS else f"{clients}"}


def quantity(text: str) -> Decimal:
    """Give the exact number that a quantity such as `2Gi` stands for; InvalidInput if it is none.

    Read by the official client, which by itself lets `1K`, `1_0`, ` 1` and `nan` through.
    """
    from kubernetes.utils import parse_quantity  # takes a second: not everybody has quantities

    if _FORM.fullmatch(text):
        with suppress(ValueError):
            return Decimal(parse_quantity(text))  # type: ignore[no-untyped-call]
    raise InvalidInput.of("quantity", "must be a number with a suffix of Kubernetes", text)


def _part(share: float) -> Decimal:
    return Decimal(str(share))
