"""How what was chosen for a run reaches the steps: options by id, dicts and lists, a context.

A knob's value is text, a number or a truth value; a dict or a list stands in it as its JSON. The
one rule: text that would be read so is refused as a value, so that every label has one meaning.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, TypeAlias

from langchain_core.runnables import RunnableConfig

from circinus.pipelines import checks
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.langchain.held import everything_of
from circinus.pipelines.model.operators import KnobValue

_Graph: TypeAlias = Any  # a CompiledStateGraph: LangGraph is there when one is handed over

_COMPILED = "langgraph.graph.state.CompiledStateGraph"
_RUNTIME = "__pregel_runtime"  # where LangGraph takes a context from that is not passed


def is_graph(step: object) -> bool:
    """Return whether a step is a compiled graph of LangGraph's."""
    return f"{type(step).__module__}.{type(step).__name__}" == _COMPILED


def label_of(field: str, value: object) -> KnobValue:
    """Return a value as one of a knob; InvalidInput if it has no JSON, or is such a text."""
    if not isinstance(value, dict | list):
        rule = "must be the dict or the list itself, not its JSON"
        checks.require(value_of(value) == value, field, rule, value)
        return value  # type: ignore[return-value]  # the knob checks it
    try:
        label = json.dumps(value)
        is_same = bool(json.loads(label) == value)
    except (TypeError, ValueError):
        is_same = False
    checks.require(is_same, field, "must be made of what JSON has, with text as keys", value)
    return label


def value_of(label: object) -> object:
    """Return what a knob's value stands for."""
    if not isinstance(label, str) or label[:1] not in ("{", "["):
        return label
    try:
        return json.loads(label)
    except ValueError:
        return label


def graphs_with_context(*steps: object) -> tuple[_Graph, ...]:
    """Return the graphs that steps are or hold whose nodes read a context of the run."""
    every: list[Any] = [value for step in steps for value in everything_of(step)]
    return tuple(one for one in every if is_graph(one) and one.context_schema is not None)


def context_fields(graph: _Graph) -> list[str]:
    """Return the names of what a graph's context has."""
    schema: Any = graph.context_schema
    if is_dataclass(schema):
        return [field.name for field in fields(schema)]
    return list(schema.model_fields if hasattr(schema, "model_fields") else schema.__annotations__)


def run_config(chosen: Mapping[str, KnobValue], graphs: Iterable[_Graph]) -> RunnableConfig:
    """Return the configuration of a run for what is chosen by id.

    InvalidInput if a context lacks what has neither a choice nor a default.
    """
    settings: dict[str, Any] = {knob: value_of(value) for knob, value in chosen.items()}
    for graph in graphs:
        own = {name: settings[name] for name in context_fields(graph) if name in settings}
        if own and _RUNTIME not in settings:
            runtime = sys.modules["langgraph.runtime"].Runtime
            settings[_RUNTIME] = runtime(context=_context(graph, own), store=graph.store)
    return RunnableConfig(configurable=settings)


def _context(graph: _Graph, own: Mapping[str, Any]) -> Any:  # noqa: ANN401 - of a user's class
    schema = graph.context_schema
    if issubclass(schema, dict):
        return dict(own)
    try:
        return schema(**own)
    except (TypeError, ValueError) as error:
        rule = f"must have values for all that {schema.__name__} has no default of ({error})"
        raise InvalidInput.of("choices", rule, sorted(own)) from error
