"""Pipelines that behave in every way a check has to live with."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.execution.metrics import SetMetric
from circinus.pipelines.execution.pipeline import Checked, Pipeline
from circinus.pipelines.model.operators import Operator, OperatorSpec
from circinus.pipelines.model.payload import Payload


def _pipeline(
    check: Callable[[Sequence[Payload]], Checked] | None = None,
    prepare: Callable[[], None] | None = None,
) -> Pipeline:
    run = Operator(spec=OperatorSpec(name="inverse"), run=lambda x, knobs: 1 / x)  # type: ignore[operator]  # numbers
    return Pipeline(
        name="checked",
        operators=(run,),
        score=lambda output, expected: 1.0,
        remarks=check,
        prepare=prepare,
    )


def _hang(inputs: Sequence[Payload]) -> Checked:
    time.sleep(60)
    return Checked()


def _refuse(inputs: Sequence[Payload]) -> Checked:
    raise InvalidInput.of("operator inverse", "must be right", inputs[0])


def _print(inputs: Sequence[Payload]) -> Checked:
    sys.stdout.write("noise\n")
    return Checked((f"saw {len(inputs)} inputs",), ("inverse",))


plain = _pipeline()
prepared = _pipeline(_print, prepare=lambda: None)
told = _pipeline(_print)
refused = _pipeline(_refuse)
hanging = _pipeline(_hang)
exiting = _pipeline(lambda inputs: os._exit(7))
raising = _pipeline(lambda inputs: Checked((str(1 / 0),)))
over_set = replace(plain, score=SetMetric(function="sklearn.metrics.f1_score"))
