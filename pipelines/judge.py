"""A judge: a metric that may be wrong, may call endpoints, and is checked with labels by people.

A language model that reads an answer is one, and so is any cheap stand-in for what people would
say. The one rule: a judge that fails gives a failed measurement with its cause, never a score.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

from circinus.pipelines import checks
from circinus.pipelines.endpoints import EndpointCall
from circinus.pipelines.operators import Operator, OperatorSpec, Settings
from circinus.pipelines.payload import Payload
from circinus.pipelines.retries import CallRetries

SCORING = "score"
"""What a metric is called where operators are: in failures, and by the gate of a judge's calls."""

JudgeFunction = Callable[[Payload, Payload, Payload], float]
"""`judge(input, output, expected)` in [0, 1]; higher is better."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """What scores a pipeline's outputs in place of people, as `Pipeline.score`.

    One that calls endpoints says which, and reports what it used as operators do, by
    `report_usage`. It is scored by labels: see `profiler.judged`.
    """

    judge: JudgeFunction  # the function
    name: str = "judge"  # what queries call it
    # the endpoints that it calls, as of an operator without knobs; empty: none
    calls: tuple[EndpointCall, ...] | tuple[str, ...] = ()
    retries: CallRetries = field(default_factory=CallRetries)  # what is done when a call fails
    operator: Operator = field(init=False, repr=False)  # it, as what calls endpoints

    def __post_init__(self) -> None:
        checks.name("judge.name", self.name)
        where = f"judge {self.name}.judge"
        checks.require(callable(self.judge), where, "must be callable", self.judge)
        spec = OperatorSpec(name=SCORING, calls=self.calls)
        operator = Operator(spec=spec, run=self._run, retries=self.retries)
        object.__setattr__(self, "operator", operator)

    def __call__(self, output: Payload, expected: Payload, input: Payload = None) -> float:
        """Return what it says of an output, as a metric would; what it raises is raised."""
        return self.judge(input, output, expected)

    @staticmethod
    def asked(input: Payload, output: Payload, expected: Payload) -> Payload:
        """Return what its operator takes."""
        return [input, output, expected]

    def _run(self, inputs: Payload, _: Settings) -> Payload:
        given, output, expected = cast("list[Payload]", inputs)  # as `asked` made it
        score = float(self.judge(given, output, expected))
        if not 0 <= score <= 1:
            raise ValueError(f"must give a score in [0, 1], got {score}")
        return score
