"""A pipeline of one operator that takes as long as a measured model would.

Its input is the seconds of a request on each kind of instance; the knob says which kind an
instance stands for. So every worker process is the same program at another speed.
"""

from __future__ import annotations

from circinus.pipelines.clock import SystemClock
from circinus.pipelines.operators import Knob, Operator, OperatorSpec, Settings
from circinus.pipelines.payload import Payload
from circinus.pipelines.pipeline import Pipeline

MOST_KINDS = 8


def _serve(inputs: Payload, knobs: Settings) -> Payload:
    if not isinstance(inputs, list):
        raise TypeError(f"input must be a list of seconds, got {inputs!r}.")
    seconds = inputs[int(knobs["kind"])]
    if not isinstance(seconds, float):
        raise TypeError(f"seconds must be a float, got {seconds!r}.")
    SystemClock().sleep(seconds)
    return None


_KIND = Knob(name="kind", values=tuple(range(MOST_KINDS)))
emulated = Pipeline(
    name="emulated",
    operators=(Operator(spec=OperatorSpec(name="serve", knobs=(_KIND,)), run=_serve),),
    score=lambda output, expected: float(output is None),
)
