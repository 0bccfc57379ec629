"""Operators that wait, that compute, that do both, and that let a program or threads compute."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.io.datasets import Dataset, Example
from circinus.pipelines.model.operators import Operator, OperatorSpec

WAITS_S, COMPUTES_S, PROGRAM_S = 0.06, 0.006, 0.06
_BURN = f"import time\nwhile time.process_time() < {PROGRAM_S}: pass"


def burn(seconds: float) -> None:
    """Compute for so many seconds of the processor."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def _wait(_given: object, _knobs: object) -> int:
    time.sleep(WAITS_S)
    return 1


def _compute(_given: object, _knobs: object) -> int:
    burn(COMPUTES_S)
    return 1


def _both(_given: object, _knobs: object) -> int:
    time.sleep(WAITS_S)
    burn(COMPUTES_S)
    return 1


def _program(_given: object, _knobs: object) -> int:
    subprocess.run([sys.executable, "-I", "-S", "-c", _BURN], check=True)
    return 1


def _threads(_given: object, _knobs: object) -> int:
    thread = threading.Thread(target=burn, args=(COMPUTES_S,))
    thread.start()
    thread.join()
    return 1


def _operator(name: str, after: tuple[str, ...] = ()) -> Operator:
    kinds = {"w": _wait, "c": _compute, "b": _both, "p": _program, "t": _threads}
    return Operator(spec=OperatorSpec(name=name, after=after), run=kinds[name[0]])


def _examples(count: int, _seed: int) -> Dataset:
    return Dataset(name="n", examples=tuple(Example(input=n, expected=1) for n in range(count)))


PIPELINE = Pipeline(
    name="waiting",
    operators=(
        *map(_operator, ("w1", "w2", "c1", "c2", "b1", "p1", "t1")),
        _operator("c3", ("w1",)),
        _operator("w3", ("c1",)),
    ),
    score=lambda _output, _expected: 1.0,
    examples=_examples,
)
