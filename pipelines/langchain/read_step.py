"""What an operator that was read off a chain is made of: steps, and whence their input."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from circinus.pipelines.langchain.steps import Call, Step, Value
from circinus.pipelines.langchain.values import pack, unpack
from circinus.pipelines.payload import Payload


class Source(NamedTuple):
    """Where a step's input comes from."""

    after: tuple[str, ...]  # the operators whose outputs it is made of
    # gives it from these outputs and the pipeline's input
    made: Callable[[Mapping[str, Payload], Payload], Payload]


INPUT = Source((), lambda outputs, given: given)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadStep:
    """An operator that was read off a chain, as what checks it sees it."""

    operator: str  # its name
    steps: tuple[Step, ...]  # the steps of the chain that it runs
    # `body(item, call)`: the output for what comes in, its steps run by `call`
    body: Callable[[Any, Call], Any]
    source: Source  # where what comes in is found

    def output(self, inputs: Payload, call: Call) -> Payload:
        """Give the operator's output for what an operator's function is given."""
        return pack(self.body(self.given(inputs), call))

    def given(self, inputs: Payload) -> Value:
        """Give what its steps are given, made anew."""
        after = self.source.after
        alone = len(after) == 1
        outputs = {after[0]: inputs} if alone else inputs if isinstance(inputs, dict) else {}
        return unpack(self.source.made(outputs, inputs))
