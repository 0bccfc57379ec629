"""What of a step can be chosen: what it leaves configurable, and what it reads of its run.

A step is configured by ids of fields and alternatives, which LangChain lists. What it reads of
`config["configurable"]`, of the context of a graph, or by `init_chat_model`, is known only where
`choices` names it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import CodeType, FunctionType, MethodType
from typing import Any

from langchain_core.runnables import Runnable

from circinus.pipelines import checks
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.langchain.held import everything_of, options, specs_of
from circinus.pipelines.langchain.hosted import is_made_late, takes
from circinus.pipelines.langchain.settings import context_fields, graphs_with_context, label_of
from circinus.pipelines.model.operators import Knob, KnobValue

_CONFIGURABLE = "configurable"  # the key of a run's configuration that settings are below


class Knobs:
    """Collects the knobs of a chain's steps: an id has one set of values in all of them."""

    def __init__(self, choices: Mapping[str, Sequence[object]]) -> None:
        self._choices = {
            name: tuple(label_of(f"choices.{name}", value) for value in values)
            for name, values in choices.items()
        }
        # id -> the first operator that it configures, and its values
        self.ids: dict[str, tuple[str, tuple[KnobValue, ...]]] = {}

    def of(self, operator: str, steps: Sequence[Runnable[Any, Any]]) -> tuple[Knob, ...]:
        """Return the knobs of an operator; InvalidInput if an id has other values elsewhere."""
        return tuple(self._knob(operator, *each) for each in self._values(operator, steps).items())

    def require_all(self) -> None:
        """Raise InvalidInput if a choice is of an id that no step has or reads."""
        for name in self._choices:
            known = ", ".join(self.ids) or "none"
            rule = f"must be among the ids {known}, or what a step reads of its run's settings"
            checks.require(name in self.ids, "choices", rule, name)

    def _knob(self, operator: str, name: str, values: tuple[KnobValue, ...]) -> Knob:
        where = f"configurable id of {operator}"
        other, known = self.ids.setdefault(name, (operator, values))
        rule = f"must have the options that it has in {other}: {', '.join(map(str, known))}"
        checks.require(set(known) == set(values), f"{where}, {name},", rule, values)
        checks.name(where, name)
        return Knob(name=name, values=known, shared=name)

    def _values(
        self, operator: str, steps: Sequence[Runnable[Any, Any]]
    ) -> dict[str, tuple[KnobValue, ...]]:
        try:
            specs = [spec for step in steps for spec in specs_of(step)]
        except ValueError as error:
            rule = "must have one set of options for each configurable id"
            raise InvalidInput.of(f"operator {operator}", rule, str(error)) from error
        own = {spec.id: options(spec) for spec in specs}
        knobs = {
            name: tuple(label_of(f"id {name}", value) for value in values)
            or self._choices.get(name, ())
            for name, values in own.items()
        }
        open_ids = [name for name in self._choices if name not in knobs]
        if open_ids:
            read = _Read(steps)
            knobs |= {name: self._choices[name] for name in open_ids if read.has(name)}
        return {name: values for name, values in knobs.items() if values}


class _Read:
    """What steps read of their run."""

    def __init__(self, steps: Sequence[Runnable[Any, Any]]) -> None:
        every: list[Any] = [value for step in steps for value in everything_of(step)]
        functions = [getattr(one, "__func__", one) for one in every if _is_function(one)]
        texts = {text for one in functions for text in _texts(one.__code__)}
        self._named = texts if _CONFIGURABLE in texts else set[str]()
        graphs = graphs_with_context(*steps)
        self._named |= {name for graph in graphs for name in context_fields(graph)}
        self._late: list[Any] = [one for one in every if is_made_late(one)]

    def has(self, name: str) -> bool:
        """Return whether steps name a setting: in code, in a context, in a model made late."""
        return name in self._named or any(takes(model, name) for model in self._late)


def _is_function(value: object) -> bool:
    return isinstance(value, FunctionType | MethodType)


def _texts(code: CodeType) -> Iterator[str]:
    for constant in code.co_consts:
        if isinstance(constant, str):
            yield constant
        elif isinstance(constant, tuple):
            yield from (each for each in constant if isinstance(each, str))
        elif isinstance(constant, CodeType):
            yield from _texts(constant)
