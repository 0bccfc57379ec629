"""The score of an output: by a metric, or by a judge that may call endpoints.

The one rule: whatever scores and does not give a number in [0, 1] has failed, with its cause.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import nan
from typing import cast

from circinus.pipelines.errors import InvalidInput, OperatorFailed
from circinus.pipelines.execution.calling import EndpointCaller
from circinus.pipelines.execution.metrics import Judge
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.model.configuration import Configuration
from circinus.pipelines.model.payload import Payload, encode
from circinus.pipelines.model.profile import UNPLANNABLE, Paid
from circinus.profiler.execution import FailedRun, handed_out, run_calling

_NO_KNOBS = Configuration(())
_NOTHING = Paid()
_EVERY_OUTPUT = "the metric must score every output, 0 where nothing of it is right"
_UNLIKE = 0.5
"""What stands in for the score of an output that is not as expected, where only all outputs
together have one. No figure rests on it but how far draws of an input differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """The score of an output."""

    score: float = nan  # in [0, 1]; NaN: there is none
    cause: str = ""  # why there is none; empty: there is one
    paid: Paid = _NOTHING  # what a judge's calls cost
    # what a judge scored, or is scored with all others, encoded; None: a metric scored it alone
    output: bytes | None = None


@dataclass(frozen=True, slots=True)
class Scoring:
    """Scores outputs of a pipeline. Threads may share it.

    InvalidInput if its judge calls endpoints and nothing can call them.
    """

    pipeline: Pipeline
    caller: EndpointCaller | None  # runs a judge that calls endpoints; None: nothing does

    def __post_init__(self) -> None:
        judge = self.pipeline.judge
        if judge is not None and judge.operator.spec.calls and self.caller is None:
            where = f"pipeline {self.pipeline.name}.score.calls"
            called = ", ".join(judge.operator.spec.endpoints)
            raise InvalidInput.of(where, "must be empty: nothing here calls endpoints", called)

    def of(self, output: Payload, input: Payload, expected: Payload) -> Scored:
        """Return the score of an output of an input."""
        if self.pipeline.over_set is not None:
            made = encode(output)
            return Scored(score=1.0 if made == encode(expected) else _UNLIKE, output=made)
        judge, copy = self.pipeline.judge, handed_out(output)
        if judge is not None and judge.operator.spec.calls and self.caller is not None:
            question = judge.arguments(input, output, expected)
            return _called(self.caller, judge, question, encode(output))
        try:
            score = self.pipeline.score_of(copy, handed_out(expected), handed_out(input))
        except OperatorFailed as error:
            return Scored(cause=f"{UNPLANNABLE}{_EVERY_OUTPUT} ({error.cause})")
        return Scored(score=score, output=None if judge is None else encode(output))


def _called(caller: EndpointCaller, judge: Judge, question: Payload, output: bytes) -> Scored:
    done = run_calling(caller, judge.operator, question, _NO_KNOBS)
    waited_s = done.spent_s if done.used.calls else 0.0
    paid = Paid(spent_s=done.spent_s, calls_s=waited_s, calls_usd=done.used.usd)
    if isinstance(done, FailedRun):
        return Scored(cause=done.cause, paid=paid)
    return Scored(score=cast("float", done.output), paid=paid, output=output)
