"""One value for every knob, and the space of all of them.

A configuration is known by its number: the mixed-radix number of its knob values,
the last knob of the pipeline counting fastest. So the space needs no memory, and
a planner can work on arrays of numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
import numpy.typing as npt

from circinus.pipelines import checks
from circinus.pipelines.errors import InvalidInput, Violation
from circinus.pipelines.model.graph import PipelineGraph, Slot
from circinus.pipelines.model.operators import KnobValue

IndexArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Configuration:
    """One value for every knob of a pipeline."""

    # (operator, knob, value) in the order of the graph's `choosing`: shared knobs each
    values: tuple[tuple[str, str, KnobValue], ...]

    def of(self, operator: str) -> dict[str, KnobValue]:
        """Return the settings of one operator; empty when it has no knobs."""
        return {knob: value for name, knob, value in self.values if name == operator}

    def as_dict(self) -> dict[str, dict[str, KnobValue]]:
        """Return {operator: {knob: value}}, as files and HTTP bodies write it."""
        nested: dict[str, dict[str, KnobValue]] = {}
        for operator, knob, value in self.values:
            nested.setdefault(operator, {})[knob] = value
        return nested

    def __str__(self) -> str:
        """Return `operator.knob=value` for every knob."""
        return " ".join(f"{operator}.{knob}={value}" for operator, knob, value in self.values)


class ConfigurationSpace:
    """All configurations of a pipeline, by number."""

    def __init__(self, graph: PipelineGraph) -> None:
        self.graph = graph
        self.radices = tuple(len(slot.knob.values) for slot in graph.slots)  # values of each knob
        self.size = prod(self.radices)  # number of configurations; exact however large

    def indices(self, numbers: IndexArray | list[int]) -> IndexArray:
        """Return the index of each knob's value, numbers of shape (n,) -> (n, knobs)."""
        rest = np.asarray(numbers, dtype=np.int64)
        columns = []
        for radix in reversed(self.radices):
            columns.append(rest % radix)
            rest = rest // radix
        return np.stack(columns[::-1], axis=1) if columns else np.zeros((len(rest), 0), np.int64)

    def numbers(self, indices: IndexArray) -> IndexArray:
        """Return the configuration numbers of value indices, shape (n, knobs) -> (n,)."""
        total = np.zeros(len(indices), dtype=np.int64)
        for column, radix in enumerate(self.radices):
            total = total * radix + indices[:, column]
        return total

    def configuration(self, number: int) -> Configuration:
        """Return the configuration of a number; InvalidInput if it is outside [0, size)."""
        rule = f"must be in [0, {self.size})"
        checks.require(0 <= number < self.size, "configuration number", rule, number)
        indices = []
        for radix in reversed(self.radices):
            number, index = divmod(number, radix)
            indices.append(index)
        indices.reverse()
        return Configuration(
            tuple(
                (slot.operator, slot.knob.name, slot.knob.values[indices[at]])
                for slot, at in self.graph.choosing
            )
        )

    def number(self, configuration: Configuration) -> int:
        """Return the number of a configuration; InvalidInput if a value is none of its knob's."""
        indices = [0] * len(self.radices)
        for (slot, at), (_, _, value) in zip(
            self.graph.choosing, configuration.values, strict=True
        ):
            indices[at] = slot.knob.position(value)
        total = 0
        for radix, index in zip(self.radices, indices, strict=True):
            total = total * radix + index
        return total

    def parse(self, nested: Mapping[str, Mapping[str, KnobValue]]) -> Configuration:
        """Return the configuration written as {operator: {knob: value}}.

        A knob with a single value may be left out, and a shared one where another of them is
        given. InvalidInput with all unknown or missing parts, and shared ones that differ.
        """
        violations = _unknown(self.graph, nested)
        values = []
        for slot, at in self.graph.choosing:
            chosen = _values_of_slot(self.graph, nested, at)
            own = nested.get(slot.operator, {}).get(slot.knob.name, next(iter(chosen), None))
            try:
                values.append((slot.operator, slot.knob.name, _value(slot, own, chosen)))
            except InvalidInput as error:
                violations += error.violations
        if violations:
            raise InvalidInput(violations)
        return Configuration(tuple(values))


def _value(slot: Slot, own: KnobValue | None, chosen: Sequence[KnobValue]) -> KnobValue:
    """Return a knob's value, `given` to all that share it; InvalidInput if it is none of them."""
    values = slot.knob.values
    if own is None:
        checks.require(len(values) == 1, slot.key, "must be given", None)
        return values[0]
    try:
        index = slot.knob.position(own)
    except InvalidInput as error:
        raise InvalidInput(
            [Violation(slot.key, f.rule, f.value) for f in error.violations]
        ) from error
    rule = f"must be {chosen[0]!r}, as where {slot.knob.shared} is chosen, too"
    checks.require(own == chosen[0], slot.key, rule, own)
    return values[index]


def _values_of_slot(
    graph: PipelineGraph, nested: Mapping[str, Mapping[str, KnobValue]], at: int
) -> list[KnobValue]:
    """Return the values for the knobs that one slot chooses for."""
    slots = (slot for slot, k in graph.choosing if k == at)
    return [
        nested[slot.operator][slot.knob.name]
        for slot in slots
        if slot.knob.name in nested.get(slot.operator, {})
    ]


def _unknown(
    graph: PipelineGraph, nested: Mapping[str, Mapping[str, KnobValue]]
) -> list[Violation]:
    known = {operator.name: sorted(k.name for k in operator.knobs) for operator in graph.operators}
    violations = []
    for operator, settings in nested.items():
        if operator not in known:
            violations.append(
                Violation.of("operator", f"must be among {', '.join(known)}", operator)
            )
            continue
        where = f"operator {operator}, knob"
        rule = f"must be among {', '.join(known[operator]) or '(no knobs)'}"
        violations += [Violation.of(where, rule, k) for k in settings if k not in known[operator]]
    return violations
