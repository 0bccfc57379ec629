"""Looking at a pipeline before it is planned, in a process of its own with a time limit.

A pipeline is its author's code: it may hang, print or take its process down, and the planner
must not. What the check refuses is InvalidInput; a check that could not be made is a remark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from circinus.deploy.profiling.channel import Channel
from circinus.deploy.profiling.isolated import ChildFailed, Forker, answering, run_isolated
from circinus.deploy.profiling.warm import run_copy
from circinus.pipelines.errors import InvalidInput, OperatorFailed, Stopped
from circinus.pipelines.execution.connections import runs_operators_alone
from circinus.pipelines.execution.pipeline import Checked, Pipeline
from circinus.pipelines.io.datasets import Example
from circinus.pipelines.model.configuration import ConfigurationSpace
from circinus.pipelines.model.payload import Payload, encode
from circinus.pipelines.registry import load_pipeline
from circinus.pipelines.user_code import copies_ended

CHECK_S = 30.0
"""Seconds after which a check is given up."""
CHECKED_INPUTS = 3
"""Of the data, the first ones."""
_RUNS = "must run through the pipeline ({})"


def checked(
    reference: str,
    pipeline: Pipeline,
    examples: Sequence[Example],
    *,
    timeout_s: float = CHECK_S,
    cancelled: Callable[[], bool] = lambda: False,
) -> Checked:
    """Return what a check of a pipeline shows before it is planned; nothing if it needs none.

    The reference names the pipeline, see `load_pipeline`; empty: fresh processes cannot import it,
    and a copy of this one checks it. InvalidInput where it would come out wrong; `cancelled` is
    polled while waiting, and ends it.
    """
    if pipeline.remarks is None:
        return Checked()
    request: dict[str, Payload] = {"inputs": [each.input for each in examples[:CHECKED_INPUTS]]}
    try:
        if reference:
            request["reference"] = reference
            return _read(run_copy(__name__, request, timeout_s, cancelled))

        def serve(channel: Channel) -> None:
            answering(channel, lambda: _answer(pipeline, request))

        with Forker() as forker:
            return _read(run_isolated(forker.start(serve), timeout_s, cancelled))
    except (ChildFailed, Stopped, TimeoutError) as error:
        return Checked((f"not checked: {error}",))


def tried(
    reference: str, pipeline: Pipeline, examples: Sequence[Example], timeout_s: float = CHECK_S
) -> tuple[str, ...]:
    """Return the same, having run the first example as well; InvalidInput if it fails.

    A pipeline that has to be prepared first, or calls endpoints, is not run: a remark reports it.
    """
    first = ConfigurationSpace(pipeline.graph).configuration(0)
    paid = [one.name for one in pipeline.operators if one.spec.called(first.of(one.name))]
    if pipeline.prepare is not None or paid:
        reason = (
            "the pipeline has to be prepared first"
            if pipeline.prepare is not None
            else f"{', '.join(paid)} would be paid for"
        )
        remarks = checked(reference, pipeline, examples, timeout_s=timeout_s).remarks
        return (f"no example was run: {reason}", *remarks)
    inputs = [example.input for example in examples[:CHECKED_INPUTS]]
    request: dict[str, Payload] = {"reference": reference, "inputs": inputs}
    request["expected"] = [examples[0].expected]
    try:
        return _read(run_copy(__name__, request, timeout_s)).remarks
    except TimeoutError as error:
        return (f"not checked: {error}",)
    except ChildFailed as error:
        raise InvalidInput.of("the first example", _RUNS.format(error), inputs[0]) from error


def _read(answer: dict[str, Any]) -> Checked:
    try:
        return Checked(tuple(answer["remarks"]), tuple(answer["draws"]))
    except (LookupError, TypeError) as error:
        raise ChildFailed(f"its process gave no answer ({error})") from error


def serve(channel: Channel, request: dict[str, Any]) -> None:
    """Answer a request of `checked` or `tried`, see `warm`."""
    try:
        pipeline = load_pipeline(request["reference"], allow_import=True)
    except InvalidInput as error:  # the caller has loaded it: the pipeline is not at fault
        remark = f"not checked: a fresh process cannot load it ({error})"
        channel.send(encode({"remarks": [remark], "draws": []}))
    else:
        answering(channel, lambda: _answer(pipeline, request))


def _answer(pipeline: Pipeline, request: Mapping[str, Any]) -> dict[str, Payload]:
    result = Checked()
    runs_operators_alone()
    if pipeline.remarks is not None:
        with copies_ended():
            result = pipeline.remarks(request["inputs"])
    for expected in request.get("expected", ()):
        _run_one(pipeline, request["inputs"][0], expected)
    return {"remarks": list(result.remarks), "draws": list(result.draws)}


def _run_one(pipeline: Pipeline, item: Payload, expected: Payload) -> None:
    configuration = ConfigurationSpace(pipeline.graph).configuration(0)
    try:
        output = pipeline.run(item, configuration)
        encode(output)
        if pipeline.over_set is None:
            pipeline.score_of(output, expected, item)
    except OperatorFailed as error:
        raise InvalidInput.of("the first example", _RUNS.format(error), item) from error
