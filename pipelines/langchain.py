"""LangChain Runnables as pipelines, and planned pipelines as Runnables.

Reading a chain: the steps of a `RunnableSequence`, the branches of a
`RunnableParallel` and what `RunnablePassthrough.assign` adds become operators, in any
nesting; every other Runnable is one operator, whatever it does inside. A
`configurable_alternatives`, and a `configurable_fields` with options, becomes a knob
named for its id; a field without options becomes one when `choices` lists values for
it, and keeps its default otherwise.

An operator runs its step's own function where there is one, not through the chain:
LangChain's bookkeeping costs about 0.1 ms a step and would be measured as latency.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from inspect import iscoroutinefunction, signature
from typing import Any, TypeAlias, cast

from langchain_core.runnables import (
    Runnable,
    RunnableConfig,
    RunnableLambda,
    RunnableParallel,
    RunnablePassthrough,
    RunnableSequence,
)
from langchain_core.runnables.configurable import DynamicRunnable
from langchain_core.runnables.passthrough import RunnableAssign
from langchain_core.runnables.utils import ConfigurableFieldSpec

from pipelines import checks
from pipelines.configuration import Configuration
from pipelines.dataset import Dataset
from pipelines.errors import InvalidInput
from pipelines.operators import Knob, KnobValue, Operator, OperatorFunction, OperatorSpec, Settings
from pipelines.payload import Payload
from pipelines.pipeline import Pipeline, Score
from pipelines.profile import FloatArray

Step: TypeAlias = Runnable[Any, Any]  # LangChain's steps hand on whatever they like

_RESOLVED_STEPS = 256  # settings of one step kept ready to run


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a chain does not say of itself.

    Attributes:
        name: Name of the pipeline.
        score: The metric.
        metric: What the score means, in words.
        features: Map of an input to cheap features; None when there is none.
        examples: `examples(count, seed)` gives data; None when the pipeline brings none.
        choices: Values to try for configurable fields without options, by id.
        version: Change it when a step's code changes: cached outputs are keyed by it.
    """

    name: str
    score: Score
    metric: str = "score"
    features: Callable[[Payload], FloatArray] | None = None
    examples: Callable[[int, int], Dataset] | None = None
    choices: Mapping[str, Sequence[KnobValue]] = field(default_factory=dict)
    version: str = "1"


def pipeline_from_runnable(chain: Step, reading: Reading) -> Pipeline:
    """Give the pipeline that a chain is.

    Args:
        chain: Any Runnable.
        reading: Name, metric, data and what else the chain does not hold.

    Raises:
        InvalidInput: If an id configures two steps, or `choices` names an unknown id.
    """
    reader = _Reader(reading)
    end = reader.walk(chain, _Input(), "")
    if not isinstance(end, _Output) or not reader.is_sink(end.operator):
        reader.add("output", RunnablePassthrough(), end)
    reader.check_choices()
    return Pipeline(
        name=reading.name,
        operators=tuple(reader.operators),
        score=reading.score,
        metric=reading.metric,
        features=reading.features,
        examples=reading.examples,
    )


def configured(chain: Step, configuration: Configuration) -> Step:
    """Give the user's own chain with a planned configuration chosen.

    Args:
        chain: The chain that the pipeline was read off.
        configuration: Of that pipeline.
    """
    chosen = {knob: value for _, knob, value in configuration.values}
    return chain.with_config(configurable=chosen)


def runnable_of(pipeline: Pipeline, configuration: Configuration) -> Step:
    """Give any planned pipeline as a Runnable: a sequence for a chain, else one step."""
    steps = [_step_of(operator, configuration) for operator in pipeline.by_name.values()]
    is_chain = all(
        parents == ((i - 1,) if i else ()) for i, parents in enumerate(pipeline.graph.parents)
    )
    if not is_chain or len(steps) == 1:
        return RunnableLambda(lambda item: pipeline.run(item, configuration), name=pipeline.name)
    return RunnableSequence(*steps, name=pipeline.name)


def _step_of(operator: Operator, configuration: Configuration) -> Step:
    settings = configuration.of(operator.name)
    return RunnableLambda(lambda item: operator.run(item, settings), name=operator.name)


# Where a step's input comes from --------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Input:
    """The pipeline's input."""


@dataclass(frozen=True, slots=True)
class _Output:
    """The output of an operator."""

    operator: str


@dataclass(frozen=True, slots=True)
class _Keys:
    """A dict with a source for each key, laid over a base when there is one."""

    items: Mapping[str, _Source]
    base: _Source | None = None


_Source: TypeAlias = _Input | _Output | _Keys


def _operators_of(source: _Source) -> Iterable[str]:
    if isinstance(source, _Output):
        yield source.operator
    elif isinstance(source, _Keys):
        for part in ([source.base] if source.base else []) + list(source.items.values()):
            yield from _operators_of(part)


def _assemble(source: _Source, outputs: Mapping[str, Payload], pipeline_input: Payload) -> Payload:
    if isinstance(source, _Input):
        return pipeline_input
    if isinstance(source, _Output):
        return outputs[source.operator]
    made = {key: _assemble(part, outputs, pipeline_input) for key, part in source.items.items()}
    if source.base is None:
        return made
    base = _assemble(source.base, outputs, pipeline_input)
    if not isinstance(base, dict):
        raise InvalidInput.of("assign", "must be given a dict", type(base).__name__)
    return {**base, **made}


class _Reader:
    """Collects the operators of a chain while walking it."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self.operators: list[Operator] = []
        self._ids: dict[str, str] = {}  # configurable id -> operator

    def walk(self, step: Step, source: _Source, label: str) -> _Source:
        """Give where the step's output is found, having added the operators inside it."""
        if isinstance(step, RunnableSequence):
            for inner in step.steps:
                source = self.walk(inner, source, label if len(step.steps) == 1 else "")
            return source
        if isinstance(step, RunnableParallel):
            return _Keys({key: self.walk(s, source, key) for key, s in step.steps__.items()})
        if isinstance(step, RunnableAssign):
            source = self._held(source)
            added = {key: self.walk(s, source, key) for key, s in step.mapper.steps__.items()}
            return _Keys(added, base=source)
        return self.add(label or step.get_name(), step, source)

    def add(self, label: str, step: Step, source: _Source) -> _Output:
        """Give where the output of a new operator for one step is found."""
        after = tuple(dict.fromkeys(_operators_of(source)))
        name = self._free_name(label)
        spec = OperatorSpec(name=name, after=after, knobs=self._knobs(name, step))
        run = _operator_function(step, source, after)
        self.operators.append(Operator(spec=spec, run=run, version=self._reading.version))
        return _Output(name)

    def is_sink(self, operator: str) -> bool:
        """Say whether it is the only operator that nothing comes after."""
        inner = {parent for op in self.operators for parent in op.spec.after}
        return [op.name for op in self.operators if op.name not in inner] == [operator]

    def check_choices(self) -> None:
        """Raise InvalidInput when `choices` names an id that no step has."""
        known = ", ".join(self._ids) or "none"
        for key in self._reading.choices:
            checks.require(key in self._ids, "choices", f"must be among the ids {known}", key)

    def _held(self, source: _Source) -> _Source:
        """Give a source that later steps can reach, an operator's output instead of the input."""
        if isinstance(source, _Input):
            return self.add("input", RunnablePassthrough(), source)
        return source

    def _free_name(self, label: str) -> str:
        taken = {operator.name for operator in self.operators}
        base = re.sub(r"[^A-Za-z0-9_.-]+", "-", label).strip("-") or "step"
        base = (base if base[0].isalpha() else f"step-{base}")[:55]
        names = [base, *(f"{base}-{i}" for i in range(2, len(taken) + 3))]
        return next(name for name in names if name not in taken)

    def _knobs(self, operator: str, step: Step) -> tuple[Knob, ...]:
        knobs = []
        for spec in step.config_specs:
            values = _values(spec) or tuple(self._reading.choices.get(spec.id, ()))
            if not values:
                continue
            other = self._ids.setdefault(spec.id, operator)
            rule = f"must configure one step, {other} has it already"
            checks.require(other == operator, f"configurable id of {operator}", rule, spec.id)
            knobs.append(Knob(name=spec.id, values=values))
        return tuple(knobs)


def _values(spec: ConfigurableFieldSpec) -> tuple[KnobValue, ...]:
    """Give the options of a field, the default first; none when it takes any value."""
    if not (isinstance(spec.annotation, type) and issubclass(spec.annotation, Enum)):
        return ()
    return tuple(sorted((m.value for m in spec.annotation), key=lambda v: v != spec.default))


def _operator_function(step: Step, source: _Source, after: tuple[str, ...]) -> OperatorFunction:
    resolve = lru_cache(maxsize=_RESOLVED_STEPS)(lambda items: _resolved(step, dict(items)))

    def run(inputs: Payload, knobs: Settings) -> Payload:
        if len(after) == 1:
            outputs: Mapping[str, Payload] = {after[0]: inputs}
        else:
            outputs = inputs if isinstance(inputs, dict) else {}
        return resolve(tuple(knobs.items()))(_assemble(source, outputs, inputs))

    return run


def _resolved(step: Step, chosen: dict[str, KnobValue]) -> Callable[[Payload], Payload]:
    """Give the plain function of a step with its options chosen."""
    config = RunnableConfig(configurable=chosen)
    while isinstance(step, DynamicRunnable):
        step, config = step.prepare(config)
    if isinstance(step, RunnablePassthrough) and step.func is None:
        return lambda item: item
    function = getattr(step, "func", None) if isinstance(step, RunnableLambda) else None
    if function is not None and not iscoroutinefunction(function) and _takes_one(function):
        return _calling(function, config)
    final = step
    return lambda item: cast(Payload, final.invoke(item, config))


def _calling(
    function: Callable[[Any], Any], config: RunnableConfig
) -> Callable[[Payload], Payload]:
    def call(item: Payload) -> Payload:
        output = function(item)
        if isinstance(output, Runnable):  # a lambda may give the step to go on with
            return cast(Payload, output.invoke(item, config))
        return cast(Payload, output)

    return call


def _takes_one(function: Callable[..., Any]) -> bool:
    try:
        return len(signature(function).parameters) == 1
    except (TypeError, ValueError):
        return False
