"""What a share of a machine is in requests and limits: always rounded down.

So workers that together have a whole machine never ask for more than it has. Quantities are
written as the API server writes them back.
"""

from __future__ import annotations

from decimal import Decimal

from deploy.kubernetes.quantities import quantity
from deploy.kubernetes.scheduled import DevicePolicy, MachineShape
from pipelines.errors import InvalidInput

GPU, SHARED_GPU = "nvidia.com/gpu", "nvidia.com/gpu.shared"
_KIBI, _MEBI = 1024, 2**20


def resources_of(machine: MachineShape, share: float, tier: str) -> dict[str, dict[str, str]]:
    """Give `requests` and `limits` of a worker.

    Raises:
        InvalidInput: If the device policy cannot give such a share.
    """
    cpu = _cpu(quantity(machine.cpu), share)
    memory = quantity(machine.memory)
    devices = _devices(machine, share, tier)
    return {
        "requests": {"cpu": cpu, "memory": _memory(memory, share), **devices},
        # What a worker needs in memory does not grow with its share of the time.
        "limits": {"cpu": cpu, "memory": _memory(memory, 1.0), **devices},
    }


def threads_percent(machine: MachineShape, share: float) -> int | None:
    """Give the part of a GPU's threads that an MPS client may have, in percent; None: no limit."""
    return max(1, int(_part(share) * 100)) if machine.devices is DevicePolicy.MPS else None


def _part(share: float) -> Decimal:
    return Decimal(str(share))


def _cpu(machine: Decimal, share: float) -> str:
    milli = int(machine * 1000 * _part(share))
    return f"{milli // 1000}" if milli % 1000 == 0 else f"{milli}m"


def _memory(machine: Decimal, share: float) -> str:
    mebi = int(machine / _MEBI * _part(share))
    return f"{mebi // _KIBI}Gi" if mebi and mebi % _KIBI == 0 else f"{mebi}Mi"


def _devices(machine: MachineShape, share: float, tier: str) -> dict[str, str]:
    if machine.devices is DevicePolicy.NONE:
        return {}
    gpus = machine.gpus * _part(share)
    if machine.devices is DevicePolicy.WHOLE:
        if gpus != int(gpus):
            rule = f"must be whole GPUs of the {machine.gpus} (device policy whole)"
            raise InvalidInput.of(f"share on {tier}", rule, share)
        return {GPU: f"{int(gpus)}"}
    clients = int(gpus * machine.clients)
    if clients < 1:
        rule = f"must be at least 1/{machine.clients} of a GPU (device policy {machine.devices})"
        raise InvalidInput.of(f"share on {tier}", rule, share)
    # The device plugin gives an MPS client one part; how much of it, the threads say.
    return {SHARED_GPU: "1" if machine.devices is DevicePolicy.MPS else f"{clients}"}
