"""Operators one after the other, each with its knobs: what most pipelines of the catalogue are."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from pipelines.operators import Knob, KnobValue, Operator, OperatorFunction, OperatorSpec

Grid = Mapping[str, Mapping[str, tuple[KnobValue, ...]]]
"""Operator -> knob -> values, operators in the order of the chain."""

_NONE: Mapping[str, str] = MappingProxyType({})


def chain(
    grid: Grid,
    functions: Mapping[str, OperatorFunction],
    versions: Mapping[str, str] = _NONE,
) -> tuple[Operator, ...]:
    """Give a chain of proportional operators.

    Args:
        grid: Their names and knobs.
        functions: Of each operator.
        versions: Of operators; "1" where none is given.
    """
    parents = [(), *((name,) for name in grid)]
    return tuple(
        Operator(
            spec=OperatorSpec(
                name=name,
                after=after,
                knobs=tuple(Knob(name=knob, values=values) for knob, values in knobs.items()),
            ),
            run=functions[name],
            version=versions.get(name, "1"),
        )
        for (name, knobs), after in zip(grid.items(), parents, strict=False)
    )
