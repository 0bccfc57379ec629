"""Running one step of a chain, with its options chosen.

A step without configurable parts that is a plain function is called as one: LangChain's
bookkeeping costs about 0.1 ms a step and would be measured as latency. Every other step is invoked
through LangChain with the configuration, which hands it on to whatever the step holds.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterator, Mapping
from functools import lru_cache
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction, signature
from threading import Thread
from typing import Any, TypeAlias, cast

from langchain_core.runnables import (
    Runnable,
    RunnableConfig,
    RunnableGenerator,
    RunnableLambda,
    RunnablePassthrough,
)
from langchain_core.runnables.config import set_config_context
from langchain_core.runnables.configurable import DynamicRunnable
from langchain_core.runnables.utils import ConfigurableFieldSpec
from langchain_core.tools import StructuredTool, Tool

from circinus.pipelines.operators import KnobValue

_GRAPH_FUNCTION = "RunnableCallable"  # what LangGraph makes of a plain function
_GRAPH_PARTS = ("StateGraph", "StateNodeSpec", "PregelNode", "BranchSpec")  # no Runnables
_HOLDING = ("nodes", "runnable", "bound", "branches", "path")  # their fields that hold steps

Value: TypeAlias = Any  # LangChain's steps hand on whatever they like
Step: TypeAlias = Runnable[Value, Value]
Call: TypeAlias = Callable[[Step, Any], Any]
"""`call(step, item) -> output`: runs a step of an operator, configured."""


def by_hand(chosen: Mapping[str, KnobValue]) -> Call:
    """Give how an operator runs its steps: past LangChain where that is the same."""
    functions: dict[int, Callable[[Any], Any]] = {}

    def call(step: Step, item: Value) -> Value:
        function = functions.get(id(step))
        if function is None:  # steps live as long as their pipeline: an id is one step's
            function = functions[id(step)] = _function_of(step, chosen)
        return function(item)

    return call


def by_langchain(chosen: Mapping[str, KnobValue]) -> Call:
    """Give how the chain itself would run them, to compare with."""
    return lambda step, item: invoked(step, RunnableConfig(configurable=dict(chosen)))(item)


def invoked(step: Step, config: RunnableConfig) -> Callable[[Any], Any]:
    """Give a step as LangChain runs it; one with a part that is async alone runs in a loop."""
    needs_loop = any(_is_async_alone(part) for part in _parts(step, set()))

    def call(item: Value) -> Value:
        if not needs_loop:
            try:
                return step.invoke(item, config)
            except NotImplementedError:  # how a step of one's own says that it is async alone
                pass
        return _wait_for(step.ainvoke(item, config))

    def in_context(item: Value) -> Value:
        # As in a sequence or a graph: what a function calls without a configuration finds it.
        with set_config_context(config) as context:
            return context.run(call, item)

    return in_context


def specs_of(step: Step) -> tuple[ConfigurableFieldSpec, ...]:
    """Give what of a step is configurable, once for each id; graphs are looked into as well.

    LangGraph does not tell what its nodes, and the functions it wraps, have to configure.
    """
    found = {spec.id: spec for spec in step.config_specs}
    for part in _parts(step, set()):
        if type(part).__name__ == _GRAPH_FUNCTION:
            function: Value = getattr(part, "func", None) or getattr(part, "afunc", None)
            found.update({spec.id: spec for spec in RunnableLambda(function).config_specs})
        elif builder := getattr(part, "builder", None):
            held = (node.runnable for node in getattr(builder, "nodes", {}).values())
            found.update({spec.id: spec for inner in held for spec in specs_of(inner)})
    return tuple(found.values())


def _function_of(step: Step, chosen: Mapping[str, KnobValue]) -> Callable[[Any], Any]:
    config = RunnableConfig(configurable=dict(chosen))
    while isinstance(step, DynamicRunnable):
        step, config = step.prepare(config)
    if isinstance(step, RunnablePassthrough) and step.func is None and step.afunc is None:
        return lambda item: item
    final, plain = step, _plain_function(step)
    if plain is None:
        return invoked(final, config)
    function = plain

    def call(item: Value) -> Value:
        output = function(item)  # a lambda may give the step to go on with
        return invoked(output, config)(item) if isinstance(output, Runnable) else output

    return call


def _plain_function(step: Step) -> Callable[[Any], Any] | None:
    """Give the function that a step is, when calling it is all that LangChain would do."""
    function = getattr(step, "func", None) if type(step) is RunnableLambda else None
    if function is None or step.config_specs or not callable(function):
        return None
    kinds = (iscoroutinefunction, isgeneratorfunction, isasyncgenfunction)
    if any(kind(function) for kind in kinds) or not _takes_one(function):
        return None
    return cast(Callable[[Any], Any], function)


def _takes_one(function: Callable[..., Any]) -> bool:
    try:
        return len(signature(function).parameters) == 1
    except (TypeError, ValueError):
        return False


def _is_async_alone(part: object) -> bool:
    if isinstance(part, RunnableLambda):
        return not hasattr(part, "func")
    if isinstance(part, RunnableGenerator):
        return not hasattr(part, "_transform")
    if isinstance(part, StructuredTool | Tool):
        return part.func is None
    # LangGraph's own kind of function, which has both or one of them
    return (
        getattr(part, "afunc", None) is not None
        and getattr(part, "func", 1) is None
        and (type(part).__name__ == _GRAPH_FUNCTION)
    )


def _parts(value: object, seen: set[int]) -> Iterator[Runnable[Any, Any]]:
    """Give a step and the steps that it holds in its fields, lists and dicts, at any depth."""
    if id(value) in seen:
        return
    seen.add(id(value))
    if type(value).__name__ in _GRAPH_PARTS:
        inner = [getattr(value, name, None) for name in _HOLDING]
    elif isinstance(value, Mapping):
        inner = list(value.values())
    elif isinstance(value, list | tuple):
        inner = list(value)
    elif isinstance(value, Runnable):
        yield value
        inner = [getattr(value, "builder", None), *vars(value).values()]
    else:
        return
    for item in inner:
        yield from _parts(item, seen)


def _wait_for(work: Coroutine[Value, Value, Value]) -> Value:
    return asyncio.run_coroutine_threadsafe(work, _loop(os.getpid())).result()


@lru_cache(maxsize=1)
def _loop(process: int) -> asyncio.AbstractEventLoop:
    """Give the loop of this process, in a thread of its own: callers may have a loop running."""
    loop = asyncio.new_event_loop()
    Thread(target=loop.run_forever, name="async-steps", daemon=True).start()
    return loop
