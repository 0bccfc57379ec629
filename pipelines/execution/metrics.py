"""Metrics that are no plain function: judges, and metrics of a whole set (F1, BLEU, AUC).

A judge may be wrong and may call endpoints, so people check it with labels; one that fails gives a
failed measurement, never a score. A metric of a set gives a figure in [0, 1], or none yet where
outputs are too few; any other figure or exception is an error of the metric.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from inspect import Parameter, signature
from math import isfinite
from operator import attrgetter
from typing import Any, cast

from circinus.pipelines import checks
from circinus.pipelines.errors import InvalidInput, OperatorFailed, words_of
from circinus.pipelines.execution.connections import Watch
from circinus.pipelines.model.endpoints import CallRetries, EndpointCall
from circinus.pipelines.model.operators import Operator, OperatorSpec, Settings
from circinus.pipelines.model.payload import Payload
from circinus.pipelines.model.profile import Unplannable

SCORING = "score"
"""What a metric is called where operators are: in failures, and by the gate of a judge's calls."""

JudgeFunction = Callable[[Payload, Payload, Payload], float]
"""`judge(input, output, expected)` in [0, 1]; higher is better."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """What scores a pipeline's outputs in place of people, as `Pipeline.score`.

    One that calls endpoints declares which, and reports what it used as operators do, by
    `report_usage`. It is scored by labels: see `profiler.labelling`.
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
        """Return its score of an output, as a metric would; what it raises is raised."""
        return self.judge(input, output, expected)

    @staticmethod
    def arguments(input: Payload, output: Payload, expected: Payload) -> Payload:
        """Return what its operator takes."""
        return [input, output, expected]

    def _run(self, inputs: Payload, _: Settings) -> Payload:
        item, output, expected = cast("list[Payload]", inputs)  # as `arguments` made it
        score = float(self.judge(item, output, expected))
        if not 0 <= score <= 1:
            raise ValueError(f"must give a score in [0, 1], got {score}")
        return score


LIBRARY = "sklearn.metrics"
_WORSE = ("_loss", "_error", "_deviance")  # how its functions end of which less is better
_ROUNDING = 1e-9  # that a sum of parts may be beyond 0 or 1
_UNDEFINED = (ValueError, ArithmeticError)  # what metrics raise on too few outputs


def as_is(value: Payload) -> Payload:
    """Return a value."""
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class SetMetric:
    """A metric over the whole set, as `Pipeline.score`: `function(outputs, expected)` in [0, 1].

    Both are lists in one order. A function of three arguments gets the inputs as well, and one
    that takes `y_true` first, as those of scikit-learn do, what was expected before the outputs. A
    text names a function: `sklearn.metrics.f1_score`, or `module:function`.
    """

    function: Callable[..., float] | str
    arguments: Mapping[str, Any] = field(default_factory=dict)  # by keyword, besides
    read: Callable[[Payload], Any] = as_is  # makes of a payload what the function takes

    def __post_init__(self) -> None:
        if isinstance(self.function, str):
            object.__setattr__(self, "function", named(self.function, "metric.function"))
        checks.require(
            callable(self.function), "metric.function", "must be callable", self.function
        )
        try:
            signature(self.call).bind(*[()] * positionals(self.call), **self.arguments)
        except TypeError as error:
            rule = f"must be keyword arguments of {self.name} ({error})"
            raise InvalidInput.of("metric.arguments", rule, dict(self.arguments)) from error
        except ValueError:  # a function of a compiled package may not say what it takes
            return

    @property
    def call(self) -> Callable[..., float]:
        """The function that is called."""
        return cast("Callable[..., float]", self.function)

    @property
    def takes_input(self) -> bool:
        """Whether the function gets the inputs as well."""
        return positionals(self.call) > 2

    @property
    def name(self) -> str:
        """What the function is called."""
        return str(getattr(self.function, "__qualname__", type(self.function).__name__))

    def of(
        self,
        outputs: Sequence[Payload],
        expected: Sequence[Payload],
        inputs: Sequence[Payload],
        *,
        whole: bool = False,  # whether these are all outputs that there will be
    ) -> float | None:
        """Return the figure of outputs, at least one; None: so few outputs have none.

        OperatorFailed if it is outside [0, 1], the whole set has none, or the function raises what
        no few outputs explain.
        """
        each = [[self.read(value) for value in values] for values in (outputs, expected, inputs)]
        if _expected_first(self.call):
            each[0], each[1] = each[1], each[0]
        try:
            with warnings.catch_warnings(), Watch(SCORING, declared=False):
                warnings.simplefilter("ignore")  # metrics warn of few outputs, which we handle
                figure = float(self.call(*each[: positionals(self.call)], **self.arguments))
        except Unplannable as error:
            raise OperatorFailed(SCORING, str(error)) from error
        except Exception as error:  # the metric is the user's code: a border
            if isinstance(error, _UNDEFINED) and not whole:
                return None
            raise OperatorFailed(SCORING, words_of(error)) from error
        return within_range(figure) if isfinite(figure) or whole else None


class OutOfRange(OperatorFailed):
    """A metric returned a figure that is no score."""

    def __init__(self, figure: float) -> None:
        self.figure = figure
        self.hint = "higher is better"
        if 1 < figure <= 100:
            self.hint = "divide it by 100 if it goes from 0 to 100"
        elif -1 <= figure < 0:
            self.hint = "take (1 + score) / 2 if it goes from -1 to 1"
        super().__init__(SCORING, f"must give a score in [0, 1], got {figure}: {self.hint}")


def within_range(figure: float) -> float:
    """Return a score in [0, 1]; OperatorFailed with a way to scale it if it is outside."""
    if not -_ROUNDING <= figure <= 1 + _ROUNDING:
        raise OutOfRange(figure)
    return min(max(figure, 0.0), 1.0)


def positionals(function: Callable[..., object]) -> int:
    """Return how many of (output, expected, input) a metric takes: 3 if it must have a third."""
    try:
        parameters = signature(function).parameters.values()
    except (TypeError, ValueError):  # a function of a compiled package may not say
        return 2
    kinds = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    needed = [one for one in parameters if one.kind in kinds and one.default is Parameter.empty]
    return 3 if len(needed) >= 3 else 2


def set_metric(described: str | Mapping[str, Any], where: str) -> SetMetric:
    """Return the metric that a name, or a mapping with `function` and `arguments`, stands for."""
    parts: dict[str, Any] = (
        {"function": described} if isinstance(described, str) else dict(described)
    )
    unknown = sorted(set(parts) - {"function", "arguments"})
    rule = "must have a function, and may have arguments"
    checks.require("function" in parts and not unknown, where, rule, described)
    arguments = parts.get("arguments", {})
    checks.require(
        isinstance(arguments, Mapping), f"{where}.arguments", "must be a mapping", described
    )
    return SetMetric(function=parts["function"], arguments=arguments)


def named(name: str, where: str, *, anywhere: bool = True) -> Callable[..., float]:
    """Return the function of a name: `sklearn.metrics.NAME`, or where allowed `module:function`.

    The latter runs code that the caller chose: never `anywhere` for a name from over a network.
    InvalidInput if there is none, or less of it is better.
    """
    module, _, path = name.partition(":")
    if name.startswith(f"{LIBRARY}.") and ":" not in name:
        module, path = LIBRARY, name.removeprefix(f"{LIBRARY}.")
        rule = "must be better where it is more; losses and errors are not"
        checks.require(not path.endswith(_WORSE), where, rule, name)
        public = path.isidentifier() and not path.startswith("_")
    else:
        public = anywhere and bool(module and path)
    also = ", or module:function" if anywhere else ""
    checks.require(public, where, f"must be {LIBRARY}.NAME{also}", name)
    return imported(module, path, where, name)


def imported(module: str, path: str, where: str, name: str) -> Callable[..., float]:
    """Return a function of a module; InvalidInput about `where` if there is none of that name."""
    try:
        function: object = attrgetter(path)(import_module(module))
    except (Exception, SystemExit) as error:  # the code of its author: a border
        rule = f"must be importable ({type(error).__name__}: {error})"
        raise InvalidInput.of(where, rule, name) from error
    checks.require(callable(function), where, "must name a function", name)
    return cast("Callable[..., float]", function)


def _expected_first(function: Callable[..., object]) -> bool:
    try:
        first = next(iter(signature(function).parameters), "")
    except (TypeError, ValueError):
        return False
    return first in ("y_true", "labels_true")
