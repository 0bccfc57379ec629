"""Pipelines whose operators go wrong in every way, on every tenth input or always."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import numpy as np

from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.io.datasets import Dataset, Example
from circinus.pipelines.model.operators import Knob, Operator, OperatorSpec, Settings
from circinus.pipelines.model.payload import Payload

_kept: list[object] = []


def _raises() -> Payload:
    raise ValueError("cannot read it")


def _hangs() -> Payload:
    time.sleep(3600)
    return None


def _spins() -> Payload:
    while True:
        pass


def _leaks() -> Payload:
    _kept.extend(np.zeros(2**26) for _ in range(6))  # 3 GiB, half of one at a time
    return 1.0


def _exits() -> Payload:
    os._exit(7)


def _unsendable() -> Payload:
    return {1, 2}  # type: ignore[return-value]  # what is tested


def _examples(count: int, seed: int) -> Dataset:
    inputs = [Example(input=seed * 1000 + i, expected=None) for i in range(count)]
    return Dataset(name="numbers", examples=inputs)


def _pipeline(
    name: str, trouble: Callable[[], Payload] | None, *, always: bool = False
) -> Pipeline:
    def run(inputs: Payload, knobs: Settings) -> Payload:
        assert isinstance(inputs, int)
        if trouble is not None and (always or inputs % 10 == 3):
            return trouble()
        return float(inputs % 5 < 2 + int(knobs["effort"]))

    spec = OperatorSpec(name="worker", knobs=(Knob(name="effort", values=(1, 2, 3)),))
    return Pipeline(
        name=name,
        operators=(Operator(spec=spec, run=run),),
        score=lambda output, _: output if isinstance(output, float) else 0.0,
        examples=_examples,
    )


healthy = _pipeline("healthy", None)
raising = _pipeline("raising", _raises)
hanging = _pipeline("hanging", _hangs)
spinning = _pipeline("spinning", _spins, always=True)
leaking = _pipeline("leaking", _leaks)
exiting = _pipeline("exiting", _exits)
unsendable = _pipeline("unsendable", _unsendable)

NAMES = ("healthy", "raising", "hanging", "spinning", "leaking", "exiting", "unsendable")
"""Registered by `CIRCINUS_EXTRA_PIPELINES`, in this order."""
EXTRA = ",".join(f"tests.e2e.troublesome:{name}" for name in NAMES)
EXPECTED = {
    "raising": "ValueError: cannot read it",
    "hanging": "took longer than",
    "leaking": "MemoryError",
    "exiting": "died",
    "unsendable": "payload must be",
}
"""What is told of each."""
