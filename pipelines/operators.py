"""What an operator is: one step of a pipeline, and the knobs that configure it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from pipelines import checks
from pipelines.errors import InvalidInput
from pipelines.payload import Payload

KnobValue = str | int | float | bool
Settings = Mapping[str, KnobValue]
"""One value for every knob of one operator."""

OperatorFunction = Callable[[Payload, Settings], Payload]
"""`run(inputs, knobs) -> output`.

`inputs` is the pipeline's input for a source operator, the parent's output when
there is one parent, and a dict {parent: output} when there are several. A
function is deterministic, keeps no state between calls and does not change
what it is given: outputs are cached and shared between configurations.
"""


class Scaling(StrEnum):
    """How an operator's latency answers to a share of a machine."""

    PROPORTIONAL = "proportional"
    """A share r takes 1/r times as long."""
    BATCHED = "batched"
    """A share r serves together with 1/r requests, at the batch-latency curve."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Knob:
    """A named choice of an operator.

    Attributes:
        name: Unique within its operator.
        values: The choices, at least one, no two equal.
        ordered: Whether neighbouring values are alike (a resolution is, a model is not). None
            takes numbers as ordered and everything else as unordered.
    """

    name: str
    values: tuple[KnobValue, ...]
    ordered: bool | None = None

    def __post_init__(self) -> None:
        checks.name("knob.name", self.name)
        where = f"knob {self.name}.values"
        checks.require(len(self.values) > 0, where, "must have at least one value", self.values)
        for value in self.values:
            checks.require(
                _is_value(value),
                where,
                "must be text, numbers or truth values",
                value,
            )
        checks.unique(where, self.values)
        if self.ordered is None:
            object.__setattr__(self, "ordered", _are_numbers(self.values))

    def position(self, value: KnobValue) -> int:
        """Give the index of `value`.

        Raises:
            InvalidInput: If `value` is none of the choices.
        """
        for index, candidate in enumerate(self.values):
            if candidate == value and isinstance(candidate, bool) == isinstance(value, bool):
                return index
        choices = ", ".join(map(repr, self.values))
        raise InvalidInput.of(f"knob {self.name}", f"must be one of {choices}", value)


def _is_value(value: object) -> bool:
    return isinstance(value, str | int | float) and value == value  # NaN is not itself


def _are_numbers(values: tuple[KnobValue, ...]) -> bool:
    return all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorSpec:
    """An operator as the planner sees it: no code, only its place, knobs and scaling.

    Attributes:
        name: Unique within the pipeline.
        after: Names of the operators whose outputs it takes; empty for a source.
        knobs: Its choices; may be empty.
        scaling: How a share of a machine changes its latency.
        batch_latency: For a batched operator: batch size -> latency relative to batch 1,
            not decreasing, starting at 1 -> 1.0.
        operator_class: Operators of one class, of any pipeline, are sped up alike by another
            machine (image resizing, a language model); empty: a class of its own.
    """

    name: str
    after: tuple[str, ...] = ()
    knobs: tuple[Knob, ...] = ()
    scaling: Scaling = Scaling.PROPORTIONAL
    batch_latency: Mapping[int, float] = field(default_factory=dict)
    operator_class: str = ""

    def __post_init__(self) -> None:
        checks.name("operator.name", self.name)
        where = f"operator {self.name}"
        checks.unique(f"{where}.after", self.after)
        checks.unique(f"{where}.knobs", [knob.name for knob in self.knobs])
        if self.scaling is Scaling.BATCHED:
            _check_curve(f"{where}.batch_latency", self.batch_latency)
        else:
            checks.require(
                not self.batch_latency,
                f"{where}.batch_latency",
                "must be left out for a proportional operator",
                dict(self.batch_latency),
            )

    def knob(self, name: str) -> Knob:
        """Give the knob of that name.

        Raises:
            InvalidInput: If there is none.
        """
        for knob in self.knobs:
            if knob.name == name:
                return knob
        known = ", ".join(knob.name for knob in self.knobs) or "none"
        raise InvalidInput.of(f"operator {self.name}", f"has the knobs {known}", name)


def _check_curve(where: str, curve: Mapping[int, float]) -> None:
    points = sorted(curve.items())
    rule = "must map batch sizes from 1 up to factors that start at 1.0 and do not decrease"
    checks.require(bool(points) and points[0] == (1, 1.0), where, rule, dict(curve))
    factors = [factor for _, factor in points]
    rising = all(a <= b for a, b in itertools.pairwise(factors))
    checks.require(rising, where, rule, dict(curve))


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """An operator that can run.

    Attributes:
        spec: Its place, knobs and scaling.
        run: The function, see `OperatorFunction`.
        version: Changes whenever the output for equal inputs and knobs may change: cached
            outputs of another version are not used.
        concurrency: Calls of `run` that one worker may have in hand at once, `>= 1`; more than 1
            only for a batched operator, whose runtime puts what comes together into one batch.
            A plan's latency is that of a call by itself: what calls take together, the
            dispatcher learns.
    """

    spec: OperatorSpec
    run: OperatorFunction
    version: str = "1"
    concurrency: int = 1

    def __post_init__(self) -> None:
        checks.require(
            callable(self.run), f"operator {self.spec.name}.run", "must be callable", self.run
        )
        checks.require(
            bool(self.version),
            f"operator {self.spec.name}.version",
            "must not be empty",
            self.version,
        )
        where = f"operator {self.spec.name}.concurrency"
        checks.require(self.concurrency >= 1, where, "must be >= 1", self.concurrency)
        alone = self.spec.scaling is Scaling.PROPORTIONAL
        if alone:
            rule = "must be 1 for a proportional operator"
            checks.require(self.concurrency == 1, where, rule, self.concurrency)

    @property
    def name(self) -> str:
        """The name in the specification."""
        return self.spec.name
