"""Running one operator on one input, timed.

The one rule: whatever an operator does wrong is a result with its cause, never an exception. An
operator that writes into its input would change the input of other configurations: arrays are
read-only, so writing into them fails loudly; lists and dicts are handed out as copies.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

import numpy as np

from circinus.pipelines.clock import Clock
from circinus.pipelines.errors import InvalidInput, OperatorFailed
from circinus.pipelines.execution.calling import EndpointCaller
from circinus.pipelines.execution.connections import measured
from circinus.pipelines.execution.loaded import loading
from circinus.pipelines.execution.pipeline import run_operator
from circinus.pipelines.model.configuration import Configuration
from circinus.pipelines.model.endpoints import NOTHING_USED, Usage
from circinus.pipelines.model.operators import KnobValue, Operator
from circinus.pipelines.model.payload import Payload, content_hash, payload_bytes
from circinus.profiler.prefix_cache import CacheEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed(CacheEntry):
    """The result of a run; `seconds` is one call, loading and other first-call work left out."""

    spent_s: float  # what was really run for it, warm-up included, `>= seconds`
    # whether another run on the same inputs and settings had another output; None: none was made
    varies: bool | None = None
    hosts: tuple[str, ...] = ()  # connected to without having declared it, see `connections`
    # of the run just before on the same inputs and settings; None: there was none
    first_s: float | None = None
    loading_s: float = 0.0  # of `spent_s`, of loading models; no part of `seconds`


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedRun:
    """A run without a result."""

    cause: str  # what happened, in words
    spent_s: float  # what was really run, `>= 0`
    used: Usage = NOTHING_USED  # of endpoints
    hosts: tuple[str, ...] = ()  # connected to without having declared it


Ran = TypeVar("Ran", Completed, Completed | FailedRun)


class Executor(Protocol):
    """Runs operators. As many threads as it is wide may call it at once."""

    @property
    def width(self) -> int:
        """How many runs it serves at once, `>= 1`."""

    def run(
        self, operator: Operator, inputs: Payload, configuration: Configuration
    ) -> Completed | FailedRun:
        """Return what the operator makes of the inputs under the configuration.

        The inputs are the same afterwards. An operator that raises, or whose output is no payload,
        has failed. Unavailable if nothing can be run now, whatever the operator.
        """


@dataclass(slots=True)
class InProcess:
    """Runs operators in this process, one after the other.

    The first call of an operator with new settings is made twice and the second one timed:
    models that are loaded on first use are not latency. Both are paid for.
    """

    clock: Clock  # times the calls
    caller: EndpointCaller | None = (
        None  # runs operators that call endpoints; None: there are none
    )
    # seconds so far in which this process computed, or was ready to; None: not known
    busy_s: Callable[[], float] | None = None
    width: int = field(default=1, init=False)
    _warm: set[tuple[str, str, tuple[tuple[str, KnobValue], ...]]] = field(
        default_factory=set, init=False, repr=False
    )

    def run(
        self, operator: Operator, inputs: Payload, configuration: Configuration
    ) -> Completed | FailedRun:
        """Return what the operator makes of the inputs, see `Executor`."""
        settings = tuple(configuration.of(operator.name).items())
        key = (operator.name, operator.version, settings)
        if self.caller is not None and calls(operator, configuration):
            return run_calling(self.caller, operator, inputs, configuration)
        if key in self._warm:
            return run_once(self.clock, operator, inputs, configuration, self.busy_s)
        warm_up = run_once(self.clock, operator, inputs, configuration, self.busy_s)
        if isinstance(warm_up, FailedRun):
            return warm_up
        self._warm.add(key)
        timed = run_once(self.clock, operator, inputs, configuration, self.busy_s)
        return compared(operator, warm_up, both_paid(warm_up, timed))


def run_once(
    clock: Clock,
    operator: Operator,
    inputs: Payload,
    configuration: Configuration,
    busy_s: Callable[[], float] | None = None,  # see `InProcess.busy_s`
) -> Completed | FailedRun:
    """Return what one call makes of the inputs, see `Executor`, timed by the clock."""
    copies = handed_out(inputs)
    with measured() as hosts, loading() as loaded:
        busy_began_s = busy_s() if busy_s is not None else 0.0
        start = clock.now()
        try:
            output = run_operator(operator, copies, configuration)
        except OperatorFailed as error:
            spent_s = clock.now() - start
            return FailedRun(cause=error.cause, spent_s=spent_s, hosts=tuple(hosts))
        spent_s = clock.now() - start
        own_s = busy_s() - busy_began_s if busy_s is not None else spent_s
    seconds = max(spent_s - loaded.seconds, 0.0)
    done = _completed(output, seconds, waited_s=min(max(spent_s - own_s, 0.0), seconds))
    if isinstance(done, FailedRun):
        return replace(done, spent_s=spent_s, hosts=tuple(hosts))
    return replace(done, spent_s=spent_s, loading_s=loaded.seconds, hosts=tuple(hosts))


def both_paid(first: Completed, second: Ran) -> Ran:
    """Return the second of two runs, which both are paid for."""
    spent_s = first.spent_s + second.spent_s
    if isinstance(second, FailedRun):
        return replace(second, spent_s=spent_s)
    return replace(second, spent_s=spent_s, loading_s=first.loading_s + second.loading_s)


def compared(operator: Operator, first: Completed, second: Ran) -> Ran:
    """Return the second of two runs on the same inputs and settings, and whether they differ."""
    if isinstance(second, FailedRun):
        return second
    of_each = (content_hash(operator.comparable(each.output)) for each in (first, second))
    varies = len(set(of_each)) > 1
    return replace(second, varies=varies, first_s=first.seconds)


def calls(operator: Operator, configuration: Configuration) -> bool:
    """Return whether it calls endpoints under a configuration: such runs are never warm-ups."""
    return bool(operator.spec.called(configuration.of(operator.name)))


def run_calling(
    caller: EndpointCaller, operator: Operator, inputs: Payload, configuration: Configuration
) -> Completed | FailedRun:
    """Return what an operator that calls endpoints makes of the inputs, see `Executor`.

    It is never called just to be warm. Stopped, Unaffordable for one, as the caller's gate raises.
    """
    try:
        with measured():
            called = caller.run(operator, handed_out(inputs), configuration)
    except InvalidInput as error:  # an endpoint that is not there
        return FailedRun(cause=str(error), spent_s=0.0)
    if called.failure is not None:
        cause = called.failure.cause
        return FailedRun(cause=cause, spent_s=called.seconds, used=called.used)
    return replace(_completed(called.output, called.seconds), used=called.used)


def _completed(output: Payload, seconds: float, waited_s: float = 0.0) -> Completed | FailedRun:
    try:
        size = payload_bytes(output)
    except ValueError as error:  # no payload, or text that is no Unicode
        return FailedRun(cause=str(error), spent_s=seconds)
    freeze(output)
    return Completed(
        output=output, output_bytes=size, seconds=seconds, waited_s=waited_s, spent_s=seconds
    )


def freeze(payload: Payload) -> None:
    """Make every array in the payload read-only, in place.

    In place, so that an operator that hands out a buffer of its own fails on its next call
    instead of changing what was cached.
    """
    if isinstance(payload, np.ndarray):
        payload.flags.writeable = False
    elif isinstance(payload, list | dict):
        for item in payload.values() if isinstance(payload, dict) else payload:
            freeze(item)


def handed_out(payload: Payload) -> Payload:
    """Return the payload with lists and dicts copied and arrays as read-only views, not copied."""
    if isinstance(payload, np.ndarray) and payload.flags.writeable:
        payload = payload.view()
        payload.flags.writeable = False
    if isinstance(payload, list):
        return [handed_out(item) for item in payload]
    if isinstance(payload, dict):
        return {key: handed_out(item) for key, item in payload.items()}
    return payload
