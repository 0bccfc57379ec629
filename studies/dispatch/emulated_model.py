"""A pipeline of one operator that takes as long as a measured model would.

Its input is the size of a request and its seconds on each kind of instance; the knob is the
kind that an instance stands for. So every worker process is the same program at another speed.
"""

from __future__ import annotations

from collections.abc import Sequence

from circinus.pipelines.clock import SystemClock
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.model.operators import Knob, Operator, OperatorSpec, Settings
from circinus.pipelines.model.payload import Payload

MOST_KINDS = 8


def request_payload(size: float, seconds: Sequence[float]) -> Payload:
    """Return the input of a request of a size that takes so many seconds on each kind."""
    return {"size": size, "seconds": list(seconds)}


def _argument(inputs: Payload, name: str) -> Payload:
    if not isinstance(inputs, dict) or name not in inputs:
        raise InvalidInput.of("input", "must have a size and seconds", inputs)
    return inputs[name]


# deviates: sleeping-instances
def _serve(inputs: Payload, knobs: Settings) -> Payload:
    seconds = _argument(inputs, "seconds")
    if not isinstance(seconds, list):
        raise InvalidInput.of("input.seconds", "must be a list", seconds)
    here = seconds[int(knobs["kind"])]
    if not isinstance(here, float):
        raise InvalidInput.of("input.seconds", "must be floats", here)
    SystemClock().sleep(here)
    return None


def _size(inputs: Payload) -> float:
    size = _argument(inputs, "size")
    if not isinstance(size, float):
        raise InvalidInput.of("input.size", "must be a float", size)
    return size


_KIND = Knob(name="kind", values=tuple(range(MOST_KINDS)))
emulated = Pipeline(
    name="emulated",
    operators=(Operator(spec=OperatorSpec(name="serve", knobs=(_KIND,)), run=_serve),),
    score=lambda output, expected: float(output is None),
    request_size=_size,
)
