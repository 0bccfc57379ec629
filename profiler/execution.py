"""Running one operator on one input, timed.

The one rule: whatever an operator does wrong is a result with its cause, never an exception.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Protocol

from pipelines.clock import Clock
from pipelines.configuration import Configuration
from pipelines.errors import OperatorFailed
from pipelines.operators import KnobValue, Operator
from pipelines.payload import Payload, payload_bytes
from pipelines.pipeline import run_operator
from profiler.read_only import freeze, handed_out


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """What a run gave.

    Attributes:
        output: What the operator handed on; its arrays are read-only.
        output_bytes: Its size, as links are charged for it.
        seconds: What one call takes, loading and other first-call work left out.
        spent_s: What was really run for it, warm-up included, `>= seconds`.
    """

    output: Payload
    output_bytes: int
    seconds: float
    spent_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """A run that gave nothing.

    Attributes:
        cause: What happened, in words.
        spent_s: What was really run, `>= 0`.
    """

    cause: str
    spent_s: float


class Executor(Protocol):
    """Runs operators. As many threads as it is wide may call it at once."""

    @property
    def width(self) -> int:
        """How many runs it serves at once, `>= 1`."""

    def run(
        self, operator: Operator, inputs: Payload, configuration: Configuration
    ) -> Completed | Failed:
        """Give what the operator makes of the inputs under the configuration.

        The inputs are the same afterwards. An operator that raises, or whose output is no
        payload, has failed.

        Raises:
            Unavailable: If nothing can be run now, whatever the operator.
        """


@dataclass(slots=True)
class InProcess:
    """Runs operators in this process, one after the other.

    The first call of an operator with new settings is made twice and the second one timed:
    models that are loaded on first use are not latency. Both are paid for.

    Attributes:
        clock: Times the calls.
    """

    clock: Clock
    _warm: set[tuple[str, str, tuple[tuple[str, KnobValue], ...]]] = field(
        default_factory=set, init=False, repr=False
    )

    @property
    def width(self) -> int:
        """One."""
        return 1

    def run(
        self, operator: Operator, inputs: Payload, configuration: Configuration
    ) -> Completed | Failed:
        """Give what the operator makes of the inputs, see `Executor`."""
        settings = tuple(configuration.of(operator.name).items())
        key = (operator.name, operator.version, settings)
        if key in self._warm:
            return self._once(operator, inputs, configuration)
        warm_up = self._once(operator, inputs, configuration)
        if isinstance(warm_up, Failed):
            return warm_up
        self._warm.add(key)
        timed = self._once(operator, inputs, configuration)
        return replace(timed, spent_s=warm_up.spent_s + timed.spent_s)

    def _once(
        self, operator: Operator, inputs: Payload, configuration: Configuration
    ) -> Completed | Failed:
        given = handed_out(inputs)
        start = self.clock.now()
        try:
            output = run_operator(operator, given, configuration)
        except OperatorFailed as error:
            return Failed(cause=error.cause, spent_s=self.clock.now() - start)
        seconds = self.clock.now() - start
        try:
            size = payload_bytes(output)
        except ValueError as error:  # no payload, or text that is no Unicode
            return Failed(cause=str(error), spent_s=seconds)
        freeze(output)
        return Completed(output=output, output_bytes=size, seconds=seconds, spent_s=seconds)
