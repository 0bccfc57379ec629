"""What an operator is: one step of a pipeline, and the knobs that configure it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import cast

from circinus.pipelines import checks
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.endpoints import CallRetries, EndpointCall
from circinus.pipelines.model.payload import Payload
from circinus.pipelines.user_code import settled

KnobValue = str | int | float | bool
Settings = Mapping[str, KnobValue]  # one value for every knob of one operator

OperatorFunction = Callable[[Payload, Settings], Payload]
"""`run(inputs, knobs) -> output`.

`inputs` is the pipeline's input for a source operator, the parent's output when
there is one parent, and a dict {parent: output} when there are several. A
function is deterministic, keeps no state between calls and does not change
its input: outputs are cached and shared between configurations. An `async def` is awaited.
"""

BatchFunction = Callable[[Sequence[Payload], Settings], Sequence[Payload]]
"""`run_batch(inputs, knobs) -> outputs`, one for each input in their order, as of `run`."""


class Scaling(StrEnum):
    """How an operator's latency answers to a share of a machine."""

    PROPORTIONAL = "proportional"  # a share r takes 1/r times as long
    BATCHED = "batched"  # a share r serves together with 1/r requests, at the batch-latency curve


@dataclass(frozen=True, slots=True, kw_only=True)
class Knob:
    """A named choice of an operator."""

    name: str  # unique within its operator
    values: tuple[KnobValue, ...]  # the choices, at least one, no two equal
    # whether neighbouring values are alike (a resolution is, a model is not). None takes numbers
    # as ordered and everything else as unordered
    ordered: bool | None = None
    # knobs of several operators that share one name here have one value; empty: it stands alone
    shared: str = ""

    def __post_init__(self) -> None:
        checks.name("knob.name", self.name)
        where = f"knob {self.name}.values"
        checks.require(len(self.values) > 0, where, "must have at least one value", self.values)
        choices: tuple[object, ...] = self.values
        for value in choices:
            good = isinstance(value, str | int | float) and value == value  # NaN is not itself
            checks.require(good, where, "must be text, numbers or truth values", value)
        checks.unique(where, self.values)
        if self.ordered is None:
            numbers = (isinstance(v, int | float) and not isinstance(v, bool) for v in self.values)
            object.__setattr__(self, "ordered", all(numbers))

    def position(self, value: KnobValue) -> int:
        """Return the index of `value`; InvalidInput if it is none of the choices."""
        for index, candidate in enumerate(self.values):
            if candidate == value and isinstance(candidate, bool) == isinstance(value, bool):
                return index
        choices = ", ".join(map(repr, self.values))
        raise InvalidInput.of(f"knob {self.name}", f"must be one of {choices}", value)


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorSpec:
    """An operator as the planner sees it: no code, only its place, knobs and scaling."""

    name: str  # unique within the pipeline
    after: tuple[str, ...] = ()  # operators whose outputs it takes; empty for a source
    knobs: tuple[Knob, ...] = ()  # its choices; may be empty
    scaling: Scaling = Scaling.PROPORTIONAL  # how a share of a machine changes its latency
    # for a batched operator: batch size -> latency relative to batch 1, not decreasing, starting
    # at 1 -> 1.0
    batch_latency: Mapping[int, float] = field(default_factory=dict)
    # operators of one class, of any pipeline, are sped up alike by another machine (image
    # resizing, a language model); empty: a class of its own
    operator_class: str = ""
    # the endpoints that it calls. A name that is a value of a knob is called where the knob has
    # that value, another one always; an `EndpointCall` states it in other words. Empty: none
    calls: tuple[EndpointCall, ...] | tuple[str, ...] = ()
    # whether equal inputs may give unlike outputs: then scores are means over several draws
    draws: bool = False
    # whether it connects to something over the network that costs nothing; see `connections`
    network: bool = False

    def __post_init__(self) -> None:
        checks.name("operator.name", self.name)
        where = f"operator {self.name}"
        knobs = {knob.name: knob.values for knob in self.knobs}
        calls = tuple(EndpointCall.of(call, knobs) for call in self.calls)
        object.__setattr__(self, "calls", calls)
        for call in calls:
            for knob, value in call.when.items():
                checks.among(f"{where}.calls.when", knob, knobs)
                rule = f"must be a value of the knob {knob}"
                checks.require(value in knobs[knob], f"{where}.calls.when.{knob}", rule, value)
        checks.unique(f"{where}.calls", [(c.endpoint, *sorted(c.when.items())) for c in calls])
        checks.unique(f"{where}.after", self.after)
        checks.unique(f"{where}.knobs", [knob.name for knob in self.knobs])
        points = sorted(self.batch_latency.items())
        rising = all(a <= b for (_, a), (_, b) in itertools.pairwise(points))
        rule = "must map batch sizes from 1 up to factors that start at 1.0 and do not decrease"
        good = points[:1] == [(1, 1.0)] and rising
        if self.scaling is Scaling.PROPORTIONAL:
            rule, good = "must be left out for a proportional operator", not points
        checks.require(good, f"{where}.batch_latency", rule, dict(self.batch_latency))

    @property
    def all_calls(self) -> tuple[EndpointCall, ...]:
        """Its `calls`, each as a `EndpointCall`."""
        return cast("tuple[EndpointCall, ...]", self.calls)  # made so when it was built

    @property
    def endpoints(self) -> tuple[str, ...]:
        """Names of all endpoints that it may call, each once, in the order of its `calls`."""
        return tuple(dict.fromkeys(call.endpoint for call in self.all_calls))

    def called(self, settings: Settings) -> tuple[EndpointCall, ...]:
        """Return what it calls under its own settings; empty: nothing, so it needs a machine."""
        return tuple(call for call in self.all_calls if call.holds(settings))


def _left_out(inputs: Payload, knobs: Settings) -> Payload:
    raise NotImplementedError


def _whole(output: Payload) -> Payload:
    return output


def _run_alone(run_batch: BatchFunction, inputs: Payload, knobs: Settings) -> Payload:
    (output,) = settled(run_batch([inputs], knobs))
    return output


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """An operator that can run."""

    spec: OperatorSpec  # its place, knobs and scaling
    # the function, see `OperatorFunction`; left out, it is `run_batch` with one input
    run: OperatorFunction = _left_out
    version: str = "1"  # another one when equal inputs may give other outputs: a cache's key
    # calls of `run` that one worker may have in hand at once, `>= 1`; more than 1 only for a
    # batched operator, whose runtime puts what comes together into one batch. A plan's latency
    # is that of a call by itself: what calls take together, the dispatcher learns
    concurrency: int = 1
    # several inputs in one call, only for a batched operator: a worker gathers calls that come
    # together, at most `concurrency` of them, while no call is late for it. None: `run` it is
    run_batch: BatchFunction | None = None
    # what of an output equal calls have alike, where they differ in what is no answer: a message's
    # id, say. By it an operator is known to draw
    comparable: Callable[[Payload], Payload] = _whole
    # of one that calls endpoints: what is done when a call fails
    retries: CallRetries = field(default_factory=CallRetries)

    def __post_init__(self) -> None:
        where = f"operator {self.spec.name}"
        if self.run_batch is not None:
            rule, batched = "must be callable", self.spec.scaling is Scaling.BATCHED
            checks.require(callable(self.run_batch), f"{where}.run_batch", rule, self.run_batch)
            rule = "must be left out for a proportional operator"
            checks.require(batched, f"{where}.run_batch", rule, self.run_batch)
            if self.run is _left_out:
                object.__setattr__(self, "run", partial(_run_alone, self.run_batch))
        rule = "must be given, or run_batch"
        checks.require(self.run is not _left_out, f"{where}.run", rule, None)
        checks.require(callable(self.run), f"{where}.run", "must be callable", self.run)
        checks.require(bool(self.version), f"{where}.version", "must not be empty", self.version)
        checks.at_least(f"{where}.concurrency", self.concurrency, 1)
        good = self.concurrency == 1 or self.spec.scaling is Scaling.BATCHED
        rule = "must be 1 for a proportional operator"
        checks.require(good, f"{where}.concurrency", rule, self.concurrency)

    @property
    def name(self) -> str:
        """The name in the specification."""
        return self.spec.name
