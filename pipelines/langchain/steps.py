"""Running one step of a chain, with its options chosen, in a session of its own.

A step without configurable parts that is a plain function is called as one: LangChain's
bookkeeping costs about 0.1 ms a step and would be measured as latency. Every other step is invoked
through LangChain with the configuration. A run begins without a conversation or thread, as an
output that depends on earlier inputs is no operator's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction, signature
from typing import Any, NamedTuple, TypeAlias, cast
from uuid import uuid4

from langchain_core.runnables import (
    Runnable,
    RunnableConfig,
    RunnableGenerator,
    RunnableLambda,
    RunnablePassthrough,
)
from langchain_core.runnables.config import ensure_config, merge_configs, set_config_context
from langchain_core.runnables.configurable import DynamicRunnable
from langchain_core.runnables.history import RunnableWithMessageHistory
from langchain_core.tools import StructuredTool, Tool

from circinus.pipelines.langchain.held import everything_of, parts, specs_of
from circinus.pipelines.langchain.settings import is_graph, run_config
from circinus.pipelines.langchain.values import pack, unpack
from circinus.pipelines.model.operators import KnobValue
from circinus.pipelines.model.payload import Payload
from circinus.pipelines.user_code import wait_for

_GRAPH_FUNCTION = "RunnableCallable"  # what LangGraph makes of a plain function
NAMES = {"run_name", "callbacks"}  # of a configuration: do not affect what is done
INHERITED = {"tags", "metadata"}  # what steps can read, and pass to the steps inside

Value: TypeAlias = Any  # LangChain's steps hand on whatever they like
Step: TypeAlias = Runnable[Value, Value]
Call: TypeAlias = Callable[[Step, Any], Any]
"""`call(step, item) -> output`: runs a step of an operator, configured."""


def by_hand(config: RunnableConfig) -> Call:
    """Return how an operator runs its steps: past LangChain where that is the same."""
    functions: dict[int, Callable[[Any], Any]] = {}

    def call(step: Step, item: Value) -> Value:
        function = functions.get(id(step))
        if function is None:  # steps live as long as their pipeline: an id is one step's
            function = functions[id(step)] = _function_of(step, config)
        return function(item)

    return call


def by_langchain(config: RunnableConfig) -> Call:
    """Return how the chain itself would run them, to compare with."""
    return lambda step, item: invoked(step, config)(item)


def invoked(step: Step, config: RunnableConfig) -> Callable[[Any], Any]:
    """Return a step as LangChain runs it; one with a part that is async alone runs in a loop."""
    inside = parts(step)
    needs_loop = any(map(_is_async_alone, inside))
    may_need_loop = any(map(_is_of_one_s_own, inside))
    sessions = Sessions(step)

    def call(item: Value, config: RunnableConfig) -> Value:
        if not needs_loop:
            try:
                return step.invoke(item, config)
            except NotImplementedError:  # how a step of one's own declares that it is async alone
                if not may_need_loop:
                    raise
        return wait_for(step.ainvoke(item, config))

    def in_context(item: Value) -> Value:
        # As in a sequence or a graph: whole, and visible to functions that call without one.
        with sessions.opened(config) as own:
            whole = ensure_config(own)
            with set_config_context(whole) as context:
                return context.run(call, item, whole)

    return in_context


def hands_on(step: Step) -> bool:
    """Return whether a step returns its input, and does nothing else."""
    return type(step) is RunnablePassthrough and step.func is None and step.afunc is None


def _function_of(step: Step, config: RunnableConfig) -> Callable[[Any], Any]:
    if isinstance(step, DynamicRunnable):
        step, config = step.prepare(config)
    if hands_on(step):
        return lambda item: item
    is_read = _has_annotations(config) or config.get("configurable")  # a function may ask for it
    final, plain = step, None if is_read else _plain_function(step)
    if plain is None:
        return invoked(final, config)
    function = plain

    def call(item: Value) -> Value:
        output = function(item)  # a lambda may give the step to go on with
        return invoked(output, config)(item) if isinstance(output, Runnable) else output

    return call


def _plain_function(step: Step) -> Callable[[Any], Any] | None:
    """Return the function that a step is, when calling it is all that LangChain would do."""
    function = getattr(step, "func", None) if type(step) is RunnableLambda else None
    if function is None or specs_of(step) or not callable(function):
        return None
    kinds = (iscoroutinefunction, isgeneratorfunction, isasyncgenfunction)
    if any(kind(function) for kind in kinds) or not _takes_one(function):
        return None
    return cast(Callable[[Any], Any], function)


def _has_annotations(config: RunnableConfig) -> bool:
    return any(config.get(key) for key in INHERITED)


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


def _is_of_one_s_own(part: Step) -> bool:
    return not type(part).__module__.startswith(("langchain", "langgraph"))


_THREAD = "thread_id"  # by which LangGraph finds what a checkpointer keeps


class Sessions:
    """The sessions of one step."""

    def __init__(self, step: Runnable[Any, Any]) -> None:
        every: list[Any] = everything_of(step)
        savers = [one.checkpointer for one in every if is_graph(one)]
        self._savers = [one for one in savers if one]
        histories = [one for one in every if isinstance(one, RunnableWithMessageHistory)]
        self._ids = {spec.id for one in histories for spec in one.history_factory_config}
        self._ids |= {_THREAD} if self._savers else set()

    @contextmanager
    def opened(self, config: RunnableConfig) -> Iterator[RunnableConfig]:
        """Yield a configuration with new sessions, and delete what checkpointers keep of them."""
        if not self._ids:
            yield config
            return
        session = uuid4().hex
        own = RunnableConfig(configurable=dict.fromkeys(self._ids, session))
        try:
            yield merge_configs(config, own)
        finally:
            for saver in self._savers:
                with suppress(AttributeError, NotImplementedError):  # True, or one that keeps all
                    saver.delete_thread(session)


class Source(NamedTuple):
    """Where a step's input comes from."""

    after: tuple[str, ...]  # the operators whose outputs it is made of
    # gives it from these outputs and the pipeline's input
    made: Callable[[Mapping[str, Payload], Payload], Payload]


INPUT = Source((), lambda outputs, item: item)
_OUTPUT, _INPUT = "output", "input"  # what an operator hands on that carries the input


def carried_by(output: Payload) -> Payload:
    """Return the pipeline's input, of the output of an operator that carries it."""
    return output[_INPUT] if isinstance(output, dict) else None


def by_id(configuration: Mapping[str, Mapping[str, KnobValue]]) -> dict[str, KnobValue]:
    """Return what is chosen for each id, as a chain takes it: an id has one value everywhere."""
    return {knob: value for knobs in configuration.values() for knob, value in knobs.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadStep:
    """An operator that was read off a chain, as what checks it sees it."""

    operator: str  # its name
    steps: tuple[Step, ...]  # the steps of the chain that it runs
    # `body(item, call)`: the output for what comes in, its steps run by `call`
    body: Callable[[Any, Call], Any]
    source: Source  # where its input comes from
    tags: RunnableConfig  # the tags and metadata that it has in the chain
    # names of the operators that hand on the pipeline's input beside what they make; it grows
    # while the chain is read
    carriers: Collection[str] = ()
    graphs: tuple[object, ...] = ()  # those it runs whose nodes read a context

    def configured(self, chosen: Mapping[str, KnobValue]) -> RunnableConfig:
        """Return what its steps are run with."""
        return merge_configs(self.tags, run_config(chosen, self.graphs))

    def output(self, inputs: Payload, call: Call) -> Payload:
        """Return the operator's output for the inputs of its function."""
        made = pack(self.body(self.inputs_of(inputs), call))
        if self.operator not in self.carriers:
            return made
        after = self.source.after
        parent = inputs[after[0]] if len(after) > 1 and isinstance(inputs, dict) else inputs
        return {_OUTPUT: made, _INPUT: carried_by(parent) if after else inputs}

    def own(self, output: Payload) -> Payload:
        """Return what its steps made, of its output."""
        if self.operator in self.carriers and isinstance(output, dict):
            return output[_OUTPUT]
        return output

    def inputs_of(self, inputs: Payload) -> Value:
        """Return the inputs of its steps, made anew."""
        after = self.source.after
        alone = len(after) == 1
        outputs = {after[0]: inputs} if alone else inputs if isinstance(inputs, dict) else {}
        return unpack(self.source.made(outputs, inputs))
