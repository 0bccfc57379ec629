"""Whether the operators that were read off a chain give what the chain gives.

Asked before planning, on a few inputs and configurations: every operator by hand against its steps
run by LangChain with the whole configuration, on the same input, and the pipeline's output against
the configured chain's. A difference is refused, with the operator's name; what is only worth
knowing is told. An input on which both ways raise is left to profiling, which counts failures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeAlias

from langchain_core.runnables import RunnableConfig

from circinus.pipelines.configuration import Configuration, ConfigurationSpace
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.langchain.read_step import ReadStep
from circinus.pipelines.langchain.steps import Step, by_hand, by_langchain, invoked
from circinus.pipelines.langchain.values import comparable, pack, unpack
from circinus.pipelines.operators import KnobValue
from circinus.pipelines.payload import Payload, encode
from circinus.pipelines.pipeline import Pipeline, inputs_of

_INPUTS = 3  # of the data, the first ones
_DRAWN = 3  # configurations besides the first and the last
_GOLDEN = 0.6180339887  # its multiples, modulo 1, are spread evenly
_REPEATS = 4  # calls that agree with each other before two ways of calling are held to differ

_Make: TypeAlias = Callable[[], Payload]


def remarks_of(
    chain: Step, read: Sequence[ReadStep], pipeline: Pipeline, inputs: Sequence[Payload]
) -> tuple[str, ...]:
    """Give what is to be told of a pipeline read off a chain; InvalidInput where it would be wrong."""
    check = _Check(chain, read, pipeline)
    space = ConfigurationSpace(pipeline.graph)
    drawn = [int(space.size * (k * _GOLDEN % 1)) for k in range(1, _DRAWN + 1)]
    for item in inputs[:_INPUTS]:
        for number in dict.fromkeys([0, space.size - 1, *drawn]):
            check.compare(item, space.configuration(number))
    told = [f"{name} gives another output each time it is asked" for name in sorted(check.random)]
    return (*told, *check.idle_knobs(space.configuration(0), inputs[:_INPUTS]))


class _Raised(Exception):
    """What was asked raised `cause`: it has no output to compare."""


class _Check:
    """What the inputs and configurations that were tried have shown of one pipeline."""

    def __init__(self, chain: Step, read: Sequence[ReadStep], pipeline: Pipeline) -> None:
        self._chain = chain
        self._pipeline = pipeline
        self._steps = {step.operator: step for step in read}
        self.random: set[str] = set()  # operators that give another output each time
        self._given: dict[str, list[Payload]] = {}  # what each operator was given

    def compare(self, item: Payload, at: Configuration) -> None:
        """Run the operators one after the other, both ways, then the whole."""
        chosen = {knob: value for _, knob, value in at.values}
        outputs: dict[str, Payload] = {}
        try:
            for name, step in ((name, self._steps[name]) for name in self._pipeline.by_name):
                given = inputs_of(self._pipeline.graph, name, item, outputs)
                self._given.setdefault(name, []).append(given)
                hand = partial(step.output, given, by_hand(at.of(name)))
                outputs[name] = self._agreed(
                    name, hand, partial(step.output, given, by_langchain(chosen)), at
                )
        except _Raised:
            return
        if not self.random:
            call = invoked(self._chain, RunnableConfig(configurable=chosen))
            hand = partial(self._pipeline.run, item, at)
            self._agreed(f"pipeline {self._pipeline.name}", hand, lambda: pack(call(unpack(item))), at)

    def idle_knobs(self, at: Configuration, inputs: Sequence[Payload]) -> list[str]:
        """Tell the knobs that changed no output, each tried alone on what its operator was given."""
        told = []
        for slot in self._pipeline.graph.slots:
            name, knob = slot.operator, slot.knob
            if name in self.random or len(knob.values) == 1 or name not in self._given:
                continue
            values: list[Mapping[str, KnobValue]] = [
                {**at.of(name), knob.name: value} for value in knob.values
            ]
            given = self._given[name][: len(inputs)]
            if not any(self._differs(name, item, values) for item in given):
                times = f"{len(given)} input{'s' if len(given) > 1 else ''}"
                told.append(f"knob {knob.name} of {name} changed nothing on {times}")
        return told

    def _differs(self, name: str, item: Payload, values: Sequence[Mapping[str, KnobValue]]) -> bool:
        texts = set()
        for value in values:
            try:
                texts.add(_text(name, _made(partial(self._steps[name].output, item, by_hand(value)))))
            except _Raised as raised:
                texts.add(str(raised).encode())
            if len(texts) > 1:
                return True
        return False

    def _agreed(self, name: str, hand: _Make, by_chain: _Make, at: Configuration) -> Payload:
        """Give what both ways give; _Raised if both raise, InvalidInput if they differ."""
        try:
            output = _made(hand)
        except _Raised as mine:
            try:
                other = _made(by_chain)
            except _Raised:
                raise mine from None
            raise _difference(name, at, str(mine), repr(other)) from mine
        try:
            mine_all, theirs = [_text(name, output)], [_text(name, _made(by_chain)) for _ in "ab"]
            if len({*mine_all, *theirs}) == 1:
                return output
            mine_all += [_text(name, _made(hand)) for _ in range(_REPEATS)]
            theirs += [_text(name, _made(by_chain)) for _ in range(_REPEATS)]
        except _Raised as raised:
            raise _difference(name, at, repr(output), str(raised)) from raised
        if len(set(mine_all)) == len(set(theirs)) == 1:
            raise _difference(name, at, repr(mine_all[0]), repr(theirs[0]))
        self.random.add(name)
        return output


def _difference(name: str, at: Configuration, mine: str, theirs: str) -> InvalidInput:
    rule = (
        f"must give by itself what the chain configured as {at or 'it is'} gives "
        f"({theirs[:100]}): a step that holds other steps must be given what configures them"
    )
    return InvalidInput.of(f"operator {name}", rule, mine)


def _made(make: _Make) -> Payload:
    try:
        return make()
    except Exception as error:  # the user's code: a border
        raise _Raised(f"{type(error).__name__}: {error}") from error


def _text(name: str, output: Payload) -> bytes:
    """Give what is compared of an output; InvalidInput if it cannot be sent to the next operator."""
    try:
        return encode(comparable(output))
    except InvalidInput as error:
        rule = "must give what can be sent; put the step and the next one in one by as_one"
        raise InvalidInput.of(f"output of {name}", rule, error.faults[0].value) from error
