"""What an operator that was read off a chain is made of: steps, and whence their input."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import merge_configs

from circinus.pipelines.langchain.settings import run_config
from circinus.pipelines.langchain.steps import Call, Step, Value
from circinus.pipelines.langchain.values import pack, unpack
from circinus.pipelines.model.operators import KnobValue
from circinus.pipelines.model.payload import Payload


class Source(NamedTuple):
    """Where a step's input comes from."""

    after: tuple[str, ...]  # the operators whose outputs it is made of
    # gives it from these outputs and the pipeline's input
    made: Callable[[Mapping[str, Payload], Payload], Payload]


INPUT = Source((), lambda outputs, given: given)
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
    source: Source  # where what comes in is found
    told: RunnableConfig  # the tags and metadata that it has in the chain
    # names of the operators that hand on the pipeline's input beside what they make; it grows
    # while the chain is read
    carriers: Collection[str] = ()
    graphs: tuple[object, ...] = ()  # those it runs whose nodes read a context

    def configured(self, chosen: Mapping[str, KnobValue]) -> RunnableConfig:
        """Return what its steps are run with."""
        return merge_configs(self.told, run_config(chosen, self.graphs))

    def output(self, inputs: Payload, call: Call) -> Payload:
        """Return the operator's output for what an operator's function is given."""
        made = pack(self.body(self.given(inputs), call))
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

    def given(self, inputs: Payload) -> Value:
        """Return what its steps are given, made anew."""
        after = self.source.after
        alone = len(after) == 1
        outputs = {after[0]: inputs} if alone else inputs if isinstance(inputs, dict) else {}
        return unpack(self.source.made(outputs, inputs))
