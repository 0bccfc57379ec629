"""What a share of a machine is in requests and limits: always rounded down.

So workers that together have a whole machine never ask for more than it has. Quantities are
written as the API server writes them back.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal

from circinus.pipelines import checks
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.tiers import Tier

_FORM = re.compile(r"[+-]?[0-9.]+([eE][+-]?[0-9]+|[numkMGTPE]|[KMGTPE]i)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineShape:
    """What one machine has for workers, besides its GPUs (`gpus`)."""

    cpu: str = "1"  # quantity; a share of it is requested, and is the limit
    memory: str = "2Gi"  # quantity; a share of it is requested, all of it is the limit

    def __post_init__(self) -> None:
        checks.require(quantity(self.cpu) > 0, "cpu", "must be > 0", self.cpu)
        checks.require(quantity(self.memory) > 0, "memory", "must be > 0", self.memory)

    def of(self, tier: Tier) -> MachineShape:
        """Return that of a tier's machines: what the infrastructure tells, else as it is here."""
        cpu, memory = self.cpu, self.memory
        if tier.cores is not None:
            cpu = f"{max(1, int(_exact(tier.cores) * 1000))}m"
        if tier.memory_gib is not None:
            memory = f"{max(1, int(_exact(tier.memory_gib) * 1024))}Mi"
        return MachineShape(cpu=cpu, memory=memory)

    def milli_cpu(self, share: float) -> int:
        """Return a share of its CPU in thousandths of a core."""
        return int(quantity(self.cpu) * 1000 * _exact(share))

    def mebibytes(self, share: float) -> int:
        """Return a share of its memory."""
        return int(quantity(self.memory) / 2**20 * _exact(share))

    def resources(self, share: float) -> dict[str, dict[str, str]]:
        """Return `requests` and `limits`."""
        milli = self.milli_cpu(share)
        cpu = f"{milli}m" if milli % 1000 else f"{milli // 1000}"
        return {
            "requests": {"cpu": cpu, "memory": self._memory(share)},
            # What a worker needs in memory does not grow with its share of the time.
            "limits": {"cpu": cpu, "memory": self._memory(1.0)},
        }

    def _memory(self, share: float) -> str:
        mebi = self.mebibytes(share)
        return f"{mebi // 1024}Gi" if mebi and mebi % 1024 == 0 else f"{mebi}Mi"


def quantity(text: str) -> Decimal:
    """Return the exact number of a quantity such as `2Gi` stands for; InvalidInput if it is none.

    Read by the official client, which by itself lets `1K`, `1_0`, ` 1` and `nan` through.
    """
    from kubernetes.utils import parse_quantity  # takes a second: not everybody has quantities

    if _FORM.fullmatch(text):
        with suppress(ValueError):
            return Decimal(parse_quantity(text))  # type: ignore[no-untyped-call]
    raise InvalidInput.of("quantity", "must be a number with a suffix of Kubernetes", text)


def _exact(figure: float) -> Decimal:
    return Decimal(str(figure))
