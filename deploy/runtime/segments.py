"""Which operators run together in one call.

A segment is a group of operators of one tier that one instance runs in a single call. Grouping
saves calls but must never delay an operator: a group gets its inputs when its first operator could
start, and hands on its outputs when its last one is done. So an operator joins a group only if

- it is ready when the group is (all its parents are inside, or it waits for exactly
  what the group waits for), and
- no operator on another tier waits for one that is already in the group.

On a remote tier every operator is a segment of its own: it has leave for one call, another attempt
pays for no other operator anew, and those that do not wait for each other call at once.

A chain device -> cloud -> device has three segments; parallel branches on unlike
tiers are segments that can run at the same time.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from circinus.deploy.workers.execution import INPUT
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.graph import PipelineGraph
from circinus.pipelines.model.operators import OperatorSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Operators of one tier that run in one call."""

    tier: str  # where
    operators: tuple[str, ...]  # in topological order, at least one
    needs: tuple[str, ...]  # operators outside whose outputs it takes, in topological order
    takes_input: bool  # whether it takes the pipeline's input
    wants: tuple[str, ...]  # its operators whose outputs are needed outside or are the pipeline's
    further: str | None = None  # slice of the tier that they are in; None: the tier's own

    @property
    def slice(self) -> str:
        """The name of the slice that its operators are in."""
        return self.further or self.tier

    @property
    def inputs(self) -> tuple[str, ...]:
        """Return the keys of what it takes in a call to a worker."""
        return (*self.needs, INPUT) if self.takes_input else self.needs


def segments(
    graph: PipelineGraph,
    placement: Mapping[str, str],
    remote: Collection[str] = (),
    slices: Mapping[str, str] | None = None,
) -> tuple[Segment, ...]:
    """Return the segments of a placement, operator -> tier; each needs only those before it.

    `remote` names the tiers without machines, `slices` the further slices that operators are in,
    which are apart as tiers are; None: there are none.

    InvalidInput if an operator is not placed.
    """
    for operator in graph.operators:
        if operator.name not in placement:
            rule = "must place every operator, missing is"
            raise InvalidInput.of("placement", rule, operator.name)
    within = {**placement, **(slices or {})}
    groups: list[list[OperatorSpec]] = []
    for operator in graph.operators:
        group = next((g for g in groups if _may_join(graph, within, g, operator)), None)
        if group is None or placement[operator.name] in remote:
            groups.append([operator])
        else:
            group.append(operator)
    further = slices or {}
    return tuple(_segment(graph, placement, further, group) for group in groups)


def _may_join(
    graph: PipelineGraph,
    within: Mapping[str, str],  # slice of each operator
    group: list[OperatorSpec],
    operator: OperatorSpec,
) -> bool:
    own = within[operator.name]
    inside = {member.name for member in group}
    elsewhere = [other for other in graph.operators if within[other.name] != own]
    is_awaited = not inside.isdisjoint(parent for child in elsewhere for parent in child.after)
    if within[group[0].name] != own or is_awaited:
        return False
    outer = frozenset(operator.after) - inside
    if operator.after and not outer:
        return True
    # The first member's parents are all outside: they are what the group waits for.
    return outer == frozenset(group[0].after)


def _segment(
    graph: PipelineGraph,
    placement: Mapping[str, str],
    further: Mapping[str, str],  # slices of operators
    group: list[OperatorSpec],
) -> Segment:
    names = [operator.name for operator in group]
    needed = {parent for operator in group for parent in operator.after}
    consumed = {p for op in graph.operators if op.name not in names for p in op.after}
    return Segment(
        tier=placement[names[0]],
        operators=tuple(names),
        needs=tuple(op.name for op in graph.operators if op.name in needed.difference(names)),
        takes_input=any(not operator.after for operator in group),
        wants=tuple(n for n in names if n in consumed or n in graph.sinks),
        further=further.get(names[0]),
    )
