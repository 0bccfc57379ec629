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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from inspect import iscoroutinefunction, signature
from typing import Any, NamedTuple, TypeAlias, cast

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

from circinus.pipelines import checks
from circinus.pipelines.configuration import Configuration
from circinus.pipelines.dataset import Dataset
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.operators import (
    Knob,
    KnobValue,
    Operator,
    OperatorFunction,
    OperatorSpec,
    Settings,
)
from circinus.pipelines.payload import Payload
from circinus.pipelines.pipeline import Pipeline, Score
from circinus.pipelines.profile import FloatArray

Step: TypeAlias = Runnable[Any, Any]  # LangChain's steps hand on whatever they like

_RESOLVED_STEPS = 256  # settings of one step kept ready to run


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a chain does not say of itself."""

    name: str  # name of the pipeline
    score: Score  # the metric
    metric: str = "score"  # what the score means, in words
    features: Callable[[Payload], FloatArray] | None = None  # few and cheap, to draw strata by
    examples: Callable[[int, int], Dataset] | None = None  # `(count, seed)`: data of its own
    # values to try for configurable fields without options, by id
    choices: Mapping[str, Sequence[KnobValue]] = field(default_factory=dict)
    version: str = "1"  # change it when a step's code changes: cached outputs are keyed by it


def pipeline_from_runnable(chain: Step, reading: Reading) -> Pipeline:
    """Give the pipeline that a Runnable is; InvalidInput for unknown ids and ids of two steps."""
    reader = _Reader(reading)
    end = reader.walk(chain, _INPUT, "")
    if not reader.is_whole(end):
        reader.add("output", RunnablePassthrough(), end)
    for key in reading.choices:
        known = ", ".join(reader.ids) or "none"
        checks.require(key in reader.ids, "choices", f"must be among the ids {known}", key)
    return Pipeline(
        name=reading.name,
        operators=tuple(reader.operators),
        score=reading.score,
        metric=reading.metric,
        features=reading.features,
        examples=reading.examples,
    )


def configured(chain: Step, configuration: Configuration) -> Step:
    """Give the chain that a pipeline was read off, with a planned configuration of it chosen."""
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


class _Source(NamedTuple):
    """Where a step's input comes from."""

    after: tuple[str, ...]  # the operators whose outputs it is made of
    # gives it from these outputs and the pipeline's input
    made: Callable[[Mapping[str, Payload], Payload], Payload]


_INPUT = _Source((), lambda outputs, given: given)


def _keys(items: Mapping[str, _Source], base: _Source | None = None) -> _Source:
    """Give a dict with a source for each key, laid over a base when there is one."""

    def made(outputs: Mapping[str, Payload], given: Payload) -> Payload:
        parts = {key: part.made(outputs, given) for key, part in items.items()}
        under: Payload = {} if base is None else base.made(outputs, given)
        if not isinstance(under, dict):
            raise InvalidInput.of("assign", "must be given a dict", type(under).__name__)
        return {**under, **parts}

    sources = [*([base] if base else []), *items.values()]
    return _Source(tuple(dict.fromkeys(name for s in sources for name in s.after)), made)


class _Reader:
    """Collects the operators of a chain while walking it."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self.operators: list[Operator] = []
        self._outputs: dict[str, _Source] = {}
        self.ids: dict[str, str] = {}  # configurable id -> operator

    def walk(self, step: Step, source: _Source, label: str) -> _Source:
        """Give where the step's output is found, having added the operators inside it."""
        if isinstance(step, RunnableSequence):
            for inner in step.steps:
                source = self.walk(inner, source, label if len(step.steps) == 1 else "")
            return source
        if isinstance(step, RunnableParallel):
            return _keys({key: self.walk(s, source, key) for key, s in step.steps__.items()})
        if isinstance(step, RunnableAssign):
            if source is _INPUT:  # later steps can reach an operator's output, not the input
                source = self.add("input", RunnablePassthrough(), source)
            added = {key: self.walk(s, source, key) for key, s in step.mapper.steps__.items()}
            return _keys(added, base=source)
        return self.add(label or step.get_name(), step, source)

    def add(self, label: str, step: Step, source: _Source) -> _Source:
        """Give where the output of a new operator for one step is found."""
        name = self._free_name(label)
        spec = OperatorSpec(name=name, after=source.after, knobs=self._knobs(name, step))
        run = _operator_function(step, source)
        self.operators.append(Operator(spec=spec, run=run, version=self._reading.version))
        self._outputs[name] = _Source((name,), lambda outputs, given: outputs[name])
        return self._outputs[name]

    def is_whole(self, source: _Source) -> bool:
        """Say whether it is the output of the only operator that nothing comes after."""
        inner = {parent for op in self.operators for parent in op.spec.after}
        sinks = [op.name for op in self.operators if op.name not in inner]
        return len(sinks) == 1 and source is self._outputs[sinks[0]]

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
            other = self.ids.setdefault(spec.id, operator)
            rule = f"must configure one step, {other} has it already"
            checks.require(other == operator, f"configurable id of {operator}", rule, spec.id)
            knobs.append(Knob(name=spec.id, values=values))
        return tuple(knobs)


def _values(spec: ConfigurableFieldSpec) -> tuple[KnobValue, ...]:
    """Give the options of a field, the default first; none when it takes any value."""
    if not (isinstance(spec.annotation, type) and issubclass(spec.annotation, Enum)):
        return ()
    return tuple(sorted((m.value for m in spec.annotation), key=lambda v: v != spec.default))


def _operator_function(step: Step, source: _Source) -> OperatorFunction:
    resolve = lru_cache(maxsize=_RESOLVED_STEPS)(lambda items: _resolved(step, dict(items)))

    def run(inputs: Payload, knobs: Settings) -> Payload:
        if len(source.after) == 1:
            outputs: Mapping[str, Payload] = {source.after[0]: inputs}
        else:
            outputs = inputs if isinstance(inputs, dict) else {}
        return resolve(tuple(knobs.items()))(source.made(outputs, inputs))

    return run


def _resolved(step: Step, chosen: dict[str, KnobValue]) -> Callable[[Payload], Payload]:
    """Give the plain function of a step with its options chosen."""
    config = RunnableConfig(configurable=chosen)
    while isinstance(step, DynamicRunnable):
        step, config = step.prepare(config)
    if isinstance(step, RunnablePassthrough) and step.func is None:
        return lambda item: item
    function = getattr(step, "func", None) if isinstance(step, RunnableLambda) else None
    plain = function is not None and not iscoroutinefunction(function) and _takes_one(function)
    final = step

    def call(item: Payload) -> Payload:
        output = function(item) if function is not None and plain else final
        if isinstance(output, Runnable):  # a lambda may give the step to go on with
            output = output.invoke(item, config)
        return cast(Payload, output)

    return call


def _takes_one(function: Callable[..., Any]) -> bool:
    try:
        return len(signature(function).parameters) == 1
    except (TypeError, ValueError):
        return False
