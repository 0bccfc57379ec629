"""Whether the operators that were read off a chain return what the chain returns.

Asked before planning, on a few inputs and configurations: every operator by hand against its steps
run by LangChain with the whole configuration, on the same input, and the pipeline's output against
the configured chain's. A difference is refused, with the operator's name; what is only worth
knowing is a remark. An input on which both ways raise is left to profiling, which counts failures.
Operators that call endpoints are left out, with all that comes after them: a check is free.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import product
from typing import TypeAlias

from circinus.pipelines import checks
from circinus.pipelines.errors import InvalidInput, OperatorFailed, words_of
from circinus.pipelines.execution.connections import Watch, measured, remark_on
from circinus.pipelines.execution.pipeline import Checked, Pipeline, inputs_of
from circinus.pipelines.langchain.reporting import uncached
from circinus.pipelines.langchain.settings import graphs_with_context, run_config
from circinus.pipelines.langchain.steps import (
    ReadStep,
    Step,
    by_hand,
    by_id,
    by_langchain,
    invoked,
)
from circinus.pipelines.langchain.values import NotCarried, comparable, pack, unpack
from circinus.pipelines.model.configuration import Configuration, ConfigurationSpace
from circinus.pipelines.model.graph import Slot
from circinus.pipelines.model.operators import KnobValue
from circinus.pipelines.model.payload import Payload, content_hash, encode
from circinus.pipelines.model.profile import Unplannable

_DRAWN = 3  # configurations besides the first and the last
_GOLDEN = 0.6180339887  # its multiples, modulo 1, are spread evenly
_REPEATS = 4  # calls that agree with each other before two ways of calling are held to differ

_COSTS = "calls what is paid for: it and what comes after it were not compared"
_WHOLE = "pipeline "  # no name of an operator has a space

_Make: TypeAlias = Callable[[], Payload]


def remarks_of(
    chain: Step, read: Sequence[ReadStep], pipeline: Pipeline, inputs: Sequence[Payload]
) -> Checked:
    """Return what running a pipeline read off a chain shows; InvalidInput if it were wrong."""
    check = _Check(chain, read, pipeline)
    space = ConfigurationSpace(pipeline.graph)
    drawn = [int(space.size * (k * _GOLDEN % 1)) for k in range(1, _DRAWN + 1)]
    numbers = dict.fromkeys([0, space.size - 1, *drawn])
    configurations = [space.configuration(number) for number in numbers]
    for item, at in product(inputs, configurations):
        check.compare(item, at)
    skipped = [f"{name} {_COSTS}" for name in sorted(check.calling)]
    apart = "gives another output each time it is asked: the whole was not compared"
    differing = [f"{name} {apart}" for name in sorted(check.random)]
    where = f"{len(inputs)} input{'s' if len(inputs) > 1 else ''}"
    idle = [f"knob {key} changed nothing on {where}" for key in check.idle_knobs(configurations)]
    reached = [remark_on(*each) for each in check.reached if not each[0].startswith(_WHOLE)]
    return Checked((*skipped, *reached, *differing, *idle), check.draws)


class _Raised(Exception):
    """The operator raised `cause`: it has no output to compare."""


class _Check:
    """What the inputs and configurations that were tried have shown of one pipeline."""

    def __init__(self, chain: Step, read: Sequence[ReadStep], pipeline: Pipeline) -> None:
        self._chain = chain
        self._pipeline = pipeline
        self._steps = {step.operator: step for step in read}
        self.random: set[str] = set()  # operators that give another output each time
        # (operator, host) that it connected to and did not declare; a set in order
        self.reached: dict[tuple[str, str], None] = {}
        names = [one.name for one in pipeline.operators if one.spec.network]
        whole = f"{_WHOLE}{pipeline.name}"
        self._networks = {*names, whole} if names else set[str]()
        self.calling: set[str] = set()  # operators that call endpoints: a check costs nothing
        # inputs of each operator, once
        self._inputs: dict[str, dict[str, Payload]] = {name: {} for name in pipeline.by_name}

    @property
    def draws(self) -> tuple[str, ...]:
        """Operators that draw; where only the whole draws and none is declared, all compared."""
        specs = self._pipeline.graph.operators
        named = self.random & {spec.name for spec in specs}
        if self.random and not named and not self._pipeline.graph.draws:
            named = {spec.name for spec in specs} - self.calling
        return tuple(sorted(named))

    def compare(self, item: Payload, at: Configuration) -> None:
        """Run the operators one after the other, both ways, then the whole."""
        chosen = by_id(at.as_dict())
        inputs: dict[str, Payload] = {}
        outputs: dict[str, Payload] = {}
        for name, operator in self._pipeline.by_name.items():
            if not set(operator.spec.after) <= set(outputs) or self._calls(name, at):
                continue
            step = self._steps[name]
            inputs[name] = inputs_of(self._pipeline.graph, name, item, outputs)
            self._inputs[name].setdefault(content_hash(inputs[name]), inputs[name])
            hand = partial(step.output, inputs[name], by_hand(step.configured(at.of(name))))
            whole = by_langchain(step.configured(chosen))
            try:
                outputs[name] = self._agreed(
                    name, hand, partial(step.output, inputs[name], whole), at
                )
            except _Raised as raised:
                if not self._any_calls(at):  # else the whole cannot be run for nothing
                    self._refuse_if_chain_runs(name, item, at, raised)
                return
        is_whole = len(outputs) == len(self._pipeline.by_name)
        if self.random or not is_whole:  # the whole is not compared: what would make it differ is
            for name in self._sharing():
                if name in inputs:
                    self._refuse_writing(name, inputs[name], at)
            return
        hand = partial(self._pipeline.run, item, at)
        try:
            self._agreed(f"{_WHOLE}{self._pipeline.name}", hand, self._by_chain(item, chosen), at)
        except InvalidInput:
            for name in self._pipeline.by_name:  # the likeliest cause, by name
                self._refuse_writing(name, inputs[name], at)
            raise

    def _any_calls(self, at: Configuration) -> bool:
        return any([self._calls(name, at) for name in self._pipeline.by_name])

    def _calls(self, name: str, at: Configuration) -> bool:
        calls = bool(self._pipeline.by_name[name].spec.called(at.of(name)))
        self.calling |= {name} if calls else set()
        return calls

    def _sharing(self) -> list[str]:
        """Return the operators some of whose input others get as well."""
        sources = {spec.name: spec.after or ("",) for spec in self._pipeline.graph.operators}
        takers = Counter(source for after in sources.values() for source in after)
        return [name for name, after in sources.items() if max(takers[s] for s in after) > 1]

    def _refuse_writing(self, name: str, inputs: Payload, at: Configuration) -> None:
        """Raise InvalidInput if a step writes into its input: other steps have it too."""
        step = self._steps[name]
        value = step.inputs_of(inputs)
        before = pack(value)
        call = by_hand(step.configured(at.of(name)))
        with suppress(_Raised):
            self._made(name, lambda: pack(step.body(value, call)))
        try:
            is_as_it_was = encode(pack(value)) == encode(before)
        except NotCarried:  # it has put something in
            is_as_it_was = False
        rule = "must leave what it is given as it was"
        checks.require(is_as_it_was, f"operator {name}", rule, before)

    def idle_knobs(self, configurations: Sequence[Configuration]) -> list[str]:
        """Return the knobs that changed no output, each turned alone."""
        graph = self._pipeline.graph
        busy = {at for slot, at in graph.choosing if not self._is_idle(slot, configurations)}
        return [slot.key for at, slot in enumerate(graph.slots) if at not in busy]

    def _is_idle(self, slot: Slot, configurations: Sequence[Configuration]) -> bool:
        """Return whether a knob of an operator is known to change none of its outputs."""
        name = slot.operator
        is_known = name not in self.random and not self._pipeline.by_name[name].spec.calls
        has_choice = bool(self._inputs[name]) and len(slot.knob.values) > 1
        return is_known and has_choice and not self._turns(slot, configurations)

    def _turns(self, slot: Slot, configurations: Sequence[Configuration]) -> bool:
        """Return whether turning a knob changed an output, whatever the others stood at."""
        name, knob = slot.operator, slot.knob
        stood = {tuple(at.of(name).items()) for at in configurations}
        tried = product(self._inputs[name].values(), stood)
        return any(
            self._differs(name, inputs, [{**dict(at), knob.name: value} for value in knob.values])
            for inputs, at in tried
        )

    def _by_chain(self, item: Payload, chosen: Mapping[str, KnobValue]) -> _Make:
        call = invoked(self._chain, run_config(chosen, graphs_with_context(self._chain)))
        return lambda: pack(call(unpack(item)))

    def _refuse_if_chain_runs(
        self, name: str, item: Payload, at: Configuration, raised: _Raised
    ) -> None:
        """Raise InvalidInput where operators raise, whenever asked, and the chain does not."""
        by_chain, hand = (
            self._by_chain(item, by_id(at.as_dict())),
            partial(self._pipeline.run, item, at),
        )
        try:
            theirs = self._texts(name, by_chain, _REPEATS)
            self._texts(name, hand, _REPEATS)
        except _Raised as again:
            if isinstance(again.__cause__, OperatorFailed):
                raise _difference(name, at, str(raised), _as_text(theirs[0])) from again

    def _differs(
        self, name: str, item: Payload, values: Sequence[Mapping[str, KnobValue]]
    ) -> bool:
        step, texts = self._steps[name], set()
        for value in values:
            call = by_hand(step.configured(value))
            try:
                texts.update(self._texts(name, partial(step.output, item, call), 1))
            except _Raised as raised:
                texts.add(str(raised).encode())
            if len(texts) > 1:
                return True
        return False

    def _agreed(self, name: str, hand: _Make, by_chain: _Make, at: Configuration) -> Payload:
        """Return what both ways give; _Raised if both raise, InvalidInput if they differ."""
        try:
            output = self._made(name, hand)
        except _Raised as mine:
            try:
                other = self._made(name, by_chain)
            except _Raised:
                raise mine from None
            raise _difference(name, at, str(mine), repr(other)) from mine
        try:
            ours, theirs = [_text(name, output)], self._texts(name, by_chain, 2)
            if len({*ours, *theirs}) == 1:
                return output
            ours += self._texts(name, hand, _REPEATS)
            theirs += self._texts(name, by_chain, _REPEATS)
        except _Raised as raised:
            raise _difference(name, at, repr(output), str(raised)) from raised
        if len(set(ours)) == len(set(theirs)) == 1:
            raise _difference(name, at, _as_text(ours[0]), _as_text(theirs[0]))
        self.random.add(name)
        return output

    def _made(self, name: str, make: _Make) -> Payload:
        try:
            with measured() as hosts, uncached(()), Watch(name, declared=name in self._networks):
                made = make()
        except NotCarried as error:
            named = (
                replace(violation, field=f"{violation.field} of operator {name}")
                for violation in error.violations
            )
            raise InvalidInput(list(named)) from error
        except Unplannable as error:  # as it is: there is no input without it
            raise InvalidInput(error.violations) from error
        except (Exception, SystemExit) as error:  # the user's code: a border
            raise _Raised(words_of(error)) from error
        finally:
            self.reached.update(((name, host), None) for host in hosts)
        return made

    def _texts(self, name: str, make: _Make, times: int) -> list[bytes]:
        return [_text(name, self._made(name, make)) for _ in range(times)]


def _difference(name: str, at: Configuration, mine: str, theirs: str) -> InvalidInput:
    rule = (
        f"must give by itself what the chain configured as {str(at) or 'it is'} gives "
        f"({theirs[:100]}): hand what configures a step on to the steps inside, or keep them "
        "whole with as_one"
    )
    where = name if name.startswith(_WHOLE) else f"operator {name}"
    return InvalidInput.of(where, rule, mine)


def _as_text(text: bytes) -> str:
    return text[4:].decode(errors="replace")  # after the length of the header, it is JSON


def _text(name: str, output: Payload) -> bytes:
    """Return what is compared of an output; InvalidInput if it cannot be sent."""
    try:
        return encode(comparable(output))
    except InvalidInput as error:
        rule = "must give what can be sent; put the step and the next one in one by as_one"
        raise InvalidInput.of(
            f"output of operator {name}", rule, error.violations[0].value
        ) from error
