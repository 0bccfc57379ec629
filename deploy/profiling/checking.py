"""Looking at a pipeline before it is planned, in a process of its own with a time limit.

A pipeline is its author's code: it may hang, print or take its process down, and whoever plans
must not. What the check refuses is InvalidInput; that it could not be made is told as a remark.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any, cast

from circinus.deploy.profiling.channel import Channel, Garbled
from circinus.deploy.profiling.reaper import kill_group
from circinus.deploy.profiling.warm import STARTER, WarmProcess
from circinus.deploy.workers.process import without_secrets
from circinus.pipelines.errors import InvalidInput, OperatorFailed, Violation
from circinus.pipelines.execution.connections import runs_operators_alone
from circinus.pipelines.execution.pipeline import Checked, Pipeline
from circinus.pipelines.io.datasets import Example
from circinus.pipelines.model.configuration import ConfigurationSpace
from circinus.pipelines.model.payload import Payload, decode, encode
from circinus.pipelines.registry import load_pipeline
from circinus.pipelines.user_code import copies_ended

CHECK_S = 30.0
"""Seconds after which a check is given up."""
CHECKED_INPUTS = 3
"""Of the data, the first ones."""
_POLL_S = 0.1
_END_S = 5.0
_RUNS = "must run through the pipeline ({})"
_NOTHING = Checked()


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
    asked while waiting, and ends it.
    """
    if pipeline.remarks is None:
        return Checked()
    inputs = [example.input for example in examples[:CHECKED_INPUTS]]
    polls = round(timeout_s / _POLL_S)
    try:
        if not reference:
            return _answered_by_a_copy(pipeline, inputs, polls, cancelled)
        return _answered({"reference": reference, "inputs": inputs}, polls, cancelled)
    except _Ended as ended:
        return Checked((f"not checked: {ended}",))


def tried(
    reference: str, pipeline: Pipeline, examples: Sequence[Example], timeout_s: float = CHECK_S
) -> tuple[str, ...]:
    """Return the same, having run the first example as well; InvalidInput if it fails.

    A pipeline that has to be prepared first, or calls endpoints, is not run, which is told.
    """
    if pipeline.prepare is not None:
        told = checked(reference, pipeline, examples, timeout_s=timeout_s)
        return ("no example was run: the pipeline has to be prepared first", *told.remarks)
    first = ConfigurationSpace(pipeline.graph).configuration(0)
    paid = [one.name for one in pipeline.operators if one.spec.called(first.of(one.name))]
    if paid:
        told = checked(reference, pipeline, examples, timeout_s=timeout_s)
        return (f"no example was run: {', '.join(paid)} would be paid for", *told.remarks)
    inputs = [example.input for example in examples[:CHECKED_INPUTS]]
    asked: dict[str, Payload] = {"reference": reference, "inputs": inputs}
    asked["expected"] = [examples[0].expected]
    try:
        return _answered(asked, round(timeout_s / _POLL_S), lambda: False).remarks
    except _Ended as ended:
        raise InvalidInput.of("the first example", _RUNS.format(ended), inputs[0]) from ended


class _Ended(Exception):
    """The process ended before it answered."""


def _answered(asked: Mapping[str, Payload], polls: int, cancelled: Callable[[], bool]) -> Checked:
    with STARTER.used():
        process, channel = _started(asked)
        return _awaited(channel, process.pid, process.wait, polls, cancelled)


def _started(asked: Mapping[str, Payload]) -> tuple[WarmProcess, Channel]:
    try:
        return STARTER.start(__name__, asked, output=subprocess.DEVNULL)
    except OSError as error:
        raise _Ended(str(error)) from error


def _answered_by_a_copy(
    pipeline: Pipeline, inputs: list[Payload], polls: int, cancelled: Callable[[], bool]
) -> Checked:
    ours, theirs = Channel.pair()

    def serve() -> None:
        os.setpgid(0, 0)
        with without_secrets():
            Channel(theirs).send(encode(_answer(pipeline, {"inputs": inputs})))

    process = get_context("fork").Process(target=serve, daemon=True)
    process.start()
    theirs.close()

    def wait(timeout_s: float | None = None) -> int | None:
        process.join(timeout_s)
        return process.exitcode

    return _awaited(ours, process.pid or 0, wait, polls, cancelled)


def _awaited(
    channel: Channel,
    process: int,  # its id; it is ended
    wait: Callable[[float | None], int | None],  # at most so many seconds, for its exit code
    polls: int,
    cancelled: Callable[[], bool],
) -> Checked:
    def ended() -> bool:
        return wait(0.0) is not None

    try:
        answer = _polled(channel, ended, polls, cancelled)
    except (EOFError, OSError) as error:
        raise _Ended(f"its process ended with exit code {wait(_END_S)}") from error
    except (Garbled, InvalidInput, LookupError, TypeError) as error:
        raise _Ended(f"its process gave no answer ({error})") from error
    finally:
        kill_group(process)  # the programs that it called, too
        wait(_END_S)
        channel.close()
    if answer.violations:
        raise InvalidInput(answer.violations)
    return answer.shown


@dataclass(frozen=True, slots=True)
class _Answer:
    violations: Sequence[Violation] = ()
    shown: Checked = _NOTHING


def _polled(
    channel: Channel, ended: Callable[[], bool], polls: int, cancelled: Callable[[], bool]
) -> _Answer:
    for _ in range(polls):
        try:
            answer = cast("dict[str, Any]", decode(channel.receive(_POLL_S, ended)))
        except TimeoutError:
            if cancelled():
                return _Answer(shown=Checked(("not checked: cancelled",)))
            continue
        shown = Checked(tuple(answer["remarks"]), tuple(answer["draws"]))
        return _Answer([Violation(*violation) for violation in answer["violations"]], shown)
    late = f"not checked: it took longer than {polls * _POLL_S:g} s"
    return _Answer(shown=Checked((late,)))


def _checked_here(asked: dict[str, Any]) -> dict[str, Payload]:
    """Return the answer to what `_answered` asks."""
    try:
        pipeline = load_pipeline(asked["reference"], allow_import=True)
    except InvalidInput as error:  # whoever asks has loaded it: the pipeline is not at fault
        told = f"not checked: a fresh process cannot load it ({error})"
        return {"violations": [], "remarks": [told], "draws": []}
    return _answer(pipeline, asked)


def _answer(pipeline: Pipeline, asked: Mapping[str, Any]) -> dict[str, Payload]:
    shown = Checked()
    runs_operators_alone()
    try:
        if pipeline.remarks is not None:
            with copies_ended():
                shown = pipeline.remarks(asked["inputs"])
        for expected in asked.get("expected", ()):
            _run_one(pipeline, asked["inputs"][0], expected)
    except InvalidInput as error:
        violations: list[Payload] = [[one.field, one.rule, one.value] for one in error.violations]
        return {"violations": violations, "remarks": [], "draws": []}
    return {"violations": [], "remarks": list(shown.remarks), "draws": list(shown.draws)}


def _run_one(pipeline: Pipeline, item: Payload, expected: Payload) -> None:
    configuration = ConfigurationSpace(pipeline.graph).configuration(0)
    try:
        output = pipeline.run(item, configuration)
        encode(output)
        if pipeline.over_set is None:
            pipeline.score_of(output, expected, item)
    except OperatorFailed as error:
        raise InvalidInput.of("the first example", _RUNS.format(error), item) from error


def serve(channel: Channel, asked: dict[str, Any]) -> None:
    """Answer what `_answered` asks, see `warm`."""
    channel.send(encode(_checked_here(asked)))
