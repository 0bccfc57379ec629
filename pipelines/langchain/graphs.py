"""Compiled LangGraph graphs, read superstep by superstep.

A graph whose every node has one superstep in which it may run becomes operators, a node each: an
operator takes the results of those of the superstep before, applies their writes to the state
with the graph's own channels, and runs its node if an edge that was taken leads there. So a node
behind a condition costs what it did on each input, next to nothing where the condition went
elsewhere. Every other graph (loops, nodes that send or command, states that are no dicts) is one
operator, with a remark; a graph that stops for people cannot be planned.

    state   {channel: what it holds}, packed; a channel without a value is left out
    ran     the nodes that have run so far, for edges that wait for several
    writes  writes of a node of the superstep before: [[channel, value], ...]
    goto    where its edges lead, after its conditions were evaluated
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from graphlib import CycleError, TopologicalSorter
from types import FunctionType
from typing import Any, Protocol, TypeAlias

from circinus.pipelines import checks
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.execution.code_digest import names_in
from circinus.pipelines.langchain.steps import INHERITED, NAMES, Call, Source, Step, Value
from circinus.pipelines.langchain.values import NotCarried, pack, unpack

_Graph: TypeAlias = Any  # a CompiledStateGraph: LangGraph is there when one is handed over

_START, _END = "__start__", "__end__"
_SEND, _COMMAND = "Send", "Command"
_CHANNELS = ("LastValue", "BinaryOperatorAggregate")  # hold what was last written, or reduced


class Operators(Protocol):
    """What collects the operators of a chain."""

    remarks: list[str]

    def add(
        self,
        label: str,
        steps: Sequence[Step],
        source: Source,
        body: Callable[[Any, Call], Any] | None = None,
    ) -> Source:
        """Return the source of a new operator's output."""


def read(operators: Operators, graph: _Graph, source: Source, label: str) -> Source:
    """Return the source of a graph's output; InvalidInput if it cannot run by itself."""
    _refuse_what_cannot_run(graph, label)
    try:
        levels = _supersteps(graph)
    except _Unreadable as reason:
        operators.remarks.append(f"{label} is kept as one operator: {reason}")
        return operators.add(label, (graph,), source)
    nodes = _Nodes(graph)
    # What it begins with is made once, not by every node: conditions run, messages get ids.
    first = not graph.builder.branches.get(_START) and len(levels[0]) == 1
    if not first:
        start = operators.add(f"{label}-start", nodes.paths(_START), source, nodes.start)
        source = _side_by_side([start])
    for level in levels:
        source = _side_by_side(
            [operators.add(n, nodes.steps(n), source, nodes.body(n, first=first)) for n in level]
        )
        first = False
    make = source.made
    return Source(
        source.after, lambda outputs, item: pack(nodes.output(unpack(make(outputs, item))))
    )


class _Unreadable(Exception):
    """Why a graph is no set of operators, in words."""


def _side_by_side(sources: Sequence[Source]) -> Source:
    after = tuple(name for source in sources for name in source.after)
    return Source(after, lambda outputs, item: [one.made(outputs, item) for one in sources])


def _refuse_what_cannot_run(graph: _Graph, label: str) -> None:
    interrupts = [*graph.interrupt_before_nodes, *graph.interrupt_after_nodes]
    rule = "must be compiled without interrupts: it does not run from input to output by itself"
    if interrupts:
        raise InvalidInput.of(f"graph {label}", rule, interrupts)


def _supersteps(graph: _Graph) -> list[list[str]]:
    """Return the nodes of each superstep; _Unreadable when a node has no superstep of its own."""
    if reason := next(_what_cannot_be_read(graph), ""):
        raise _Unreadable(reason)
    builder = graph.builder
    single = set(builder.edges) | {
        (start, end)
        for start, branches in builder.branches.items()
        for branch in branches.values()
        for end in branch.ends.values()
    }
    ways = single | {(start, end) for starts, end in builder.waiting_edges for start in starts}
    before = {node: {start for start, end in ways if end == node} for node in builder.nodes}
    try:
        order = [node for node in TopologicalSorter(before).static_order() if node != _START]
    except CycleError as error:
        raise _Unreadable(f"it has the loop {' -> '.join(error.args[1])}") from error
    level = {_START: 0}
    for node in order:
        if not before[node]:
            raise _Unreadable(f"no edge leads to node {node}")
        level[node] = 1 + max(level[start] for start in before[node])
    runs = [((start,), end) for start, end in single if end != _END]
    for starts, end in [*runs, *builder.waiting_edges]:
        if end != _END and level[end] != 1 + max(level[start] for start in starts):
            raise _Unreadable(f"node {end} may run in more than one superstep")
    last = max(level.values())
    return [[node for node in order if level[node] == at] for at in range(1, last + 1)]


def _what_cannot_be_read(graph: _Graph) -> Iterator[str]:
    yield from _of_the_whole(graph)
    yield from _of_its_state(graph)
    for name, node in graph.builder.nodes.items():
        special = (node.ends, node.retry_policy, node.cache_policy, node.defer, node.timeout)
        if any(special) or node.is_error_handler or node.error_handler_node:
            yield f"node {name} does more than give an update"
        if _wants_more(node.runnable):
            yield f"node {name} asks for the runtime, the store or the writer"
        if _names(node.runnable, _COMMAND):
            yield f"node {name} may command"
    for start, branches in graph.builder.branches.items():
        for name, branch in branches.items():
            where = f"condition {name} after {start}"
            if branch.ends is None:
                yield f"{where} does not tell where it leads"
            if _wants_more(branch.path):
                yield f"{where} asks for the runtime, the store or the writer"
            if _names(branch.path, _SEND):
                yield f"{where} may send"


def _of_the_whole(graph: _Graph) -> Iterator[str]:
    has = {
        "a context": graph.builder.context_schema,
        "a checkpointer (each run is given a thread of its own)": graph.checkpointer,
        "a store": graph.store,
        "a cache": graph.cache,
        "retries": graph.retry_policy,
        "a time limit": graph.step_timeout,
        "managed values": graph.builder.managed,
        "a configuration": {k for k, v in (graph.config or {}).items() if v} - NAMES - INHERITED,
        "an edge that waits for its start": any(
            _START in starts for starts, _ in graph.builder.waiting_edges
        ),
    }
    yield from (f"it has {what}" for what, value in has.items() if value)


def _of_its_state(graph: _Graph) -> Iterator[str]:
    for schema, channels in graph.builder.schemas.items():
        if not (isinstance(schema, type) and issubclass(schema, dict)) or "__root__" in channels:
            yield f"its state {getattr(schema, '__name__', schema)} is no TypedDict"
    for key, channel in graph.builder.channels.items():
        if type(channel).__name__ not in _CHANNELS:
            yield f"{key} of its state is kept in a {type(channel).__name__}"


def _names(step: object, word: str) -> bool:
    """Return whether the function of a step names a class of LangGraph's."""
    functions = (getattr(step, name, None) for name in ("func", "afunc"))
    codes = [one.__code__ for one in functions if isinstance(one, FunctionType)]
    return any(word in names for code in codes for names in names_in(code))


def _wants_more(function: object) -> bool:
    return bool(set(getattr(function, "func_accepts", ())) - {"config"})


class _Nodes:
    """What the operators of one graph do."""

    def __init__(self, graph: _Graph) -> None:
        self._graph = graph
        self._builder = graph.builder

    def steps(self, name: str) -> tuple[Step, ...]:
        """Return the steps that a node's operator runs: its own and its conditions."""
        return (self._builder.nodes[name].runnable, *self.paths(name))

    def paths(self, name: str) -> tuple[Step, ...]:
        """Return the steps that decide where a node's conditional edges lead."""
        return tuple(branch.path for branch in self._builder.branches.get(name, {}).values())

    def start(self, item: Value, call: Call) -> dict[str, Any]:
        """Return the state that an input makes, and where the graph begins."""
        channels, writes = self._restored({}), self._input(item)
        goto = self._led(_START, item, channels, writes, call)
        state = self._state(self._applied(channels, writes))
        return {"node": _START, "state": state, "ran": [], "writes": [], "goto": goto}

    def body(self, name: str, *, first: bool) -> Callable[[Any, Call], dict[str, Any]]:
        """Return the operator of a node; the first ones get the graph's input."""

        def run(item: Value, call: Call) -> dict[str, Any]:
            if first:
                channels = self._applied(self._restored({}), self._input(item))
                ran, led = set[str](), True
            else:
                channels, ran, goto = self._joined(item)
                led = name in goto or self._awaited(name, ran, item)
            result = {"node": name, "state": self._state(channels), "ran": sorted(ran)}
            return result | (
                self._run(name, channels, call) if led else {"writes": [], "goto": []}
            )

        return run

    def output(self, item: Value) -> Value:
        """Return the graph's output after its last superstep."""
        channels, _, _ = self._joined(item)
        keys = self._graph.output_channels
        if isinstance(keys, str):
            return channels[keys].get()
        return _view(channels, keys)

    def _run(self, name: str, channels: dict[str, Any], call: Call) -> dict[str, Any]:
        node = self._builder.nodes[name]
        view = _view(channels, self._builder.schemas[node.input_schema])
        update = call(node.runnable, view)
        if update is not None and not isinstance(update, dict):
            rule = "must be a dict or nothing (as_one of the graph keeps it whole)"
            raise NotCarried.of(f"update of node {name}", rule, type(update).__name__)
        writes = [[key, value] for key, value in (update or {}).items() if key in channels]
        goto = self._led(name, update, channels, writes, call)
        return {"writes": writes, "goto": goto, "did": True}

    def _led(
        self,
        name: str,
        update: Value,
        channels: dict[str, Any],
        writes: list[list[Any]],
        call: Call,
    ) -> list[str]:
        """Return where the edges of a node that returned `update` lead.

        Each condition sees the state with the writes applied anew, as LangGraph does: a reducer
        that writes into what it reduces does so for each.
        """
        goto = [end for start, end in self._builder.edges if start == name]
        node = self._builder.nodes.get(name)
        schema = node.input_schema if node else self._builder.state_schema
        for condition, branch in self._builder.branches.get(name, {}).items():
            keys = self._builder.schemas[branch.input_schema or schema]
            view = _view(self._applied(channels, writes), keys)
            if branch.input_schema is None:
                view = {**(update or {}), **view}
            chosen = call(branch.path, view)
            where = f"condition {condition} after {name}"
            for end in chosen if isinstance(chosen, list | tuple) else [chosen]:
                if type(end).__name__ == _SEND:
                    rule = "must name nodes (as_one of the graph keeps it whole)"
                    raise NotCarried.of(where, rule, _SEND)
                checks.among(where, end, branch.ends)
                goto.append(branch.ends[end])
        return goto

    def _awaited(self, name: str, ran: set[str], item: Value) -> bool:
        now = {part["node"] for part in item if part.get("did")}
        waits = [set(starts) for starts, end in self._builder.waiting_edges if end == name]
        return any(starts <= ran and starts & now for starts in waits)

    def _joined(self, item: Value) -> tuple[dict[str, Any], set[str], set[str]]:
        """Return the channels after a superstep, the nodes that ran so far, and the next."""
        parts = sorted(item, key=lambda part: str(part["node"]))  # LangGraph's order of writes
        writes = [write for part in parts for write in part["writes"]]
        channels = self._applied(self._restored(parts[0]["state"]), writes)
        ran = {node for part in parts for node in part["ran"]}
        ran |= {part["node"] for part in parts if part.get("did")}
        return channels, ran, {end for part in parts for end in part["goto"]}

    def _input(self, item: Value) -> list[list[Any]]:
        """Return what an input writes."""
        if not isinstance(item, dict):
            raise InvalidInput.of("graph", "must be given a dict", type(item).__name__)
        keys = self._builder.schemas[self._builder.input_schema]
        return [[key, value] for key, value in item.items() if key in keys]

    def _restored(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """Return the channels of a state; one without a value starts as the graph declares it."""
        channels = {key: self._graph.channels[key] for key in self._builder.channels}
        return {
            key: channel.from_checkpoint(state[key]) if key in state else _fresh(channel)
            for key, channel in channels.items()
        }

    def _state(self, channels: Mapping[str, Any]) -> dict[str, Any]:
        return {key: c.checkpoint() for key, c in channels.items() if c.is_available()}

    def _applied(self, channels: dict[str, Any], writes: list[list[Any]]) -> dict[str, Any]:
        """Return the channels after the writes of one superstep."""
        after = {key: channel.copy() for key, channel in channels.items()}
        for key, channel in after.items():
            channel.update([value for written, value in writes if written == key])
        return after


def _fresh(channel: Value) -> Value:
    """Return a channel as it is declared; reducers may write into what it holds at first."""
    if not channel.is_available():
        return channel.copy()
    return channel.from_checkpoint(deepcopy(channel.checkpoint()))


def _view(channels: Mapping[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    return {key: channels[key].get() for key in keys if channels[key].is_available()}
