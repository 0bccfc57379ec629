"""Operators that sleep in place of the work of a device.

They take as long on a busy computer. A share and an emulated speed stretch them, as what waits
for a device is its work; what an operator otherwise waits they leave alone.
"""

from __future__ import annotations

from dataclasses import replace

from circinus.pipelines.model.operators import OperatorSpec, Scaling


def of_device(spec: OperatorSpec) -> OperatorSpec:
    """Return an operator that shares its machine in proportion, waits included."""
    return replace(spec, scaling=Scaling.BATCHED, batch_latency={1: 1.0, 2: 2.0})
