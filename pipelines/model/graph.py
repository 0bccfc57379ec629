"""The DAG of a pipeline, checked when it is built: names unique, parents known, no cycle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from circinus.pipelines import checks
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.operators import Knob, OperatorSpec


class Slot(NamedTuple):
    """Where a knob sits."""

    operator: str
    knob: Knob

    @property
    def key(self) -> str:
        """`operator.knob`, as configurations and files write it."""
        return f"{self.operator}.{self.knob.name}"


@dataclass(frozen=True, kw_only=True)
class PipelineGraph:
    """A pipeline without its code: what planner, traces and schedulers need.

    InvalidInput if there is no operator, a name repeats, a parent is unknown, or there is a cycle.
    """

    name: str  # name of the pipeline
    # in topological order once built, whatever order they are passed in (that order is kept among
    # operators that do not depend on each other)
    operators: tuple[OperatorSpec, ...]
    metric: str = "score"  # what the score of an output means, in words; scores are in [0, 1]
    unit: str = "1"  # unit of the score
    _position: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        checks.name("pipeline.name", self.name)
        where = f"pipeline {self.name}.operators"
        checks.require(len(self.operators) > 0, where, "must have at least one operator", [])
        names = [operator.name for operator in self.operators]
        checks.unique(where, names)
        for operator in self.operators:
            for parent in operator.after:
                checks.among(f"operator {operator.name}.after", parent, names)
        object.__setattr__(self, "operators", _topological(where, self.operators))
        positions = {operator.name: i for i, operator in enumerate(self.operators)}
        object.__setattr__(self, "_position", positions)
        for slot, at in self.choosing:
            rule = f"must be those of {self.slots[at].key}, which shares {slot.knob.shared}"
            alike = slot.knob.values == self.slots[at].knob.values
            checks.require(alike, f"knob {slot.key}.values", rule, slot.knob.values)

    def position(self, operator: str) -> int:
        """Return the index of an operator in `operators`; InvalidInput if there is none such."""
        checks.among("operator", operator, self._position)
        return self._position[operator]

    def operator(self, name: str) -> OperatorSpec:
        """Return the operator of that name; raises as `position` does."""
        return self.operators[self.position(name)]

    @cached_property
    def parents(self) -> tuple[tuple[int, ...], ...]:
        """Positions of each operator's parents, in the order of its `after`."""
        return tuple(tuple(self._position[p] for p in op.after) for op in self.operators)

    @cached_property
    def lineages(self) -> tuple[tuple[int, ...], ...]:
        """Positions of each operator's ancestors and itself, ascending: their knobs matter."""
        lines: list[frozenset[int]] = []
        for i, parents in enumerate(self.parents):
            lines.append(frozenset({i}).union(*(lines[p] for p in parents)))
        return tuple(tuple(sorted(line)) for line in lines)

    @cached_property
    def beside(self) -> tuple[tuple[int, ...], ...]:
        """Positions of those before each operator that it does not wait for."""
        return tuple(
            tuple(before for before in range(i) if before not in line)
            for i, line in enumerate(self.lineages)
        )

    @cached_property
    def is_chain(self) -> bool:
        """Whether operators run one after the other: then nothing waits for anything else."""
        return len(self.sinks) == 1 and all(len(parents) <= 1 for parents in self.parents)

    @cached_property
    def drawing(self) -> tuple[bool, ...]:
        """Of each operator, whether it or an ancestor draws: then its outputs are of one draw."""
        return tuple(any(self.operators[i].draws for i in line) for line in self.lineages)

    @cached_property
    def draws(self) -> bool:
        """Whether any operator draws."""
        return any(self.drawing)

    @cached_property
    def upstream_knobs(self) -> tuple[tuple[int, ...], ...]:
        """Positions in `slots` of the knobs of each operator's lineage."""
        on = [(self.position(slot.operator), k) for slot, k in self.choosing]
        return tuple(tuple(sorted({k for i, k in on if i in line})) for line in self.lineages)

    @cached_property
    def classes(self) -> tuple[str, ...]:
        """Class of each operator; one without is `pipeline.operator`."""
        return tuple(op.operator_class or f"{self.name}.{op.name}" for op in self.operators)

    @cached_property
    def sinks(self) -> tuple[str, ...]:
        """Names of the operators that nothing comes after: their outputs are the pipeline's."""
        inner = {parent for operator in self.operators for parent in operator.after}
        return tuple(op.name for op in self.operators if op.name not in inner)

    @cached_property
    def slots(self) -> tuple[Slot, ...]:
        """Every knob, operators in topological order, knobs as declared; shared ones once."""
        first = {at: slot for slot, at in reversed(self.choosing)}
        return tuple(first[at] for at in sorted(first))

    @cached_property
    def choosing(self) -> tuple[tuple[Slot, int], ...]:
        """Every knob of every operator, with the position in `slots` of what chooses its value."""
        slots: list[tuple[Slot, int]] = []
        firsts: dict[tuple[str, ...], int] = {}
        for operator in self.operators:
            for knob in operator.knobs:
                key = (knob.shared,) if knob.shared else (operator.name, knob.name)
                at = firsts.setdefault(key, len(firsts))
                slots.append((Slot(operator.name, knob), at))
        return tuple(slots)

    def width(self, operators: Sequence[int]) -> int:
        """Return the largest number of the operators at some positions that can run at once.

        It is the largest antichain (Dilworth: operators minus the maximum matching of ancestors).
        """
        below = {b: [a for a in operators if a != b and a in self.lineages[b]] for b in operators}
        matched: dict[int, int] = {}
        pairs = sum(_augment(b, below, matched, set()) for b in operators)
        return len(operators) - pairs


def _augment(
    b: int, below: dict[int, list[int]], matched: dict[int, int], visited: set[int]
) -> bool:
    for a in below[b]:
        if a in visited:
            continue
        visited.add(a)
        if a not in matched or _augment(matched[a], below, matched, visited):
            matched[a] = b
            return True
    return False


def _topological(where: str, operators: tuple[OperatorSpec, ...]) -> tuple[OperatorSpec, ...]:
    placed: dict[str, OperatorSpec] = {}
    while waiting := [op for op in operators if op.name not in placed]:
        ready = next((op for op in waiting if placed.keys() >= set(op.after)), None)
        if ready is None:
            raise InvalidInput.of(where, "must not form a cycle", [op.name for op in waiting])
        placed[ready.name] = ready
    return tuple(placed.values())
