"""Machines of a tier in an integer program: by number, or as paths; see `scheduler.ilp.model`.

Both have the same three parts: they add their variables and constraints to a program, `rented`
is how many machines hold anything, and `machines_of_sizes` reads the machines off a solution.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from enum import StrEnum

import pulp

from scheduler.problem import PARTS


class Symmetry(StrEnum):
    """How equal machines are told apart no longer; see `scheduler.ilp.model`."""

    ORDERED = "ordered"
    FLOW = "flow"


class Ordered:
    """Machines by number, the fuller ones first."""

    def __init__(
        self,
        program: pulp.LpProblem,
        m: int,
        machines: int,
        placed: Mapping[int, pulp.LpAffineExpression],
    ) -> None:
        self._n = [
            {
                size: program.add_variable(f"n_{m}_{k}_{size}", 0, PARTS // size, cat="Integer")
                for size in placed
            }
            for k in range(machines)
        ]
        z = [program.add_variable(f"z_{m}_{k}", cat="Binary") for k in range(machines)]
        loads = [
            # In parts, whole numbers: with shares of a millionth presolve finds no way at all.
            pulp.LpAffineExpression([(n, size) for size, n in row.items()])
            for row in self._n
        ]
        for k in range(machines):
            program += loads[k] <= PARTS * z[k]
            if k:
                program += loads[k - 1] >= loads[k]
                program += z[k - 1] >= z[k]
        for size, wanted in placed.items():
            program += pulp.lpSum(row[size] for row in self._n) == wanted
        self.rented = pulp.lpSum(z)

    def machines_of_sizes(self) -> dict[int, list[int]]:
        """Give, for each size, a machine for every item of it."""
        slots: dict[int, list[int]] = defaultdict(list)
        for k, row in enumerate(self._n):
            for size, n in row.items():
                slots[size] += [k] * whole(n.value())
        return slots


class Flow:
    """Machines as paths through loads."""

    def __init__(
        self,
        program: pulp.LpProblem,
        m: int,
        machines: int,
        placed: Mapping[int, pulp.LpAffineExpression],
    ) -> None:
        self._arcs = {
            (a, size): program.add_variable(f"f_{m}_{a}_{size}", 0, machines, cat="Integer")
            for a, size in _arcs(placed)
        }
        self.rented = program.add_variable(f"z_{m}", 0, machines, cat="Integer")
        out: dict[int, list[pulp.LpVariable]] = defaultdict(list)
        into: dict[int, list[pulp.LpVariable]] = defaultdict(list)
        for (a, size), f in self._arcs.items():
            out[a].append(f)
            into[a + size].append(f)
        for a, leaving in out.items():
            program += pulp.lpSum(leaving) <= (pulp.lpSum(into[a]) if a else self.rented)
        for size, wanted in placed.items():
            of_size = [f for (_, s), f in self._arcs.items() if s == size]
            program += pulp.lpSum(of_size) >= wanted

    def machines_of_sizes(self) -> dict[int, list[int]]:
        """Give, for each size, a machine for every item of it."""
        left: dict[int, list[int]] = defaultdict(list)  # load -> sizes put on top of it
        for (a, size), f in self._arcs.items():
            left[a] += [size] * whole(f.value())
        slots: dict[int, list[int]] = defaultdict(list)
        for machine in range(len(left[0])):
            load = 0
            while left[load]:
                size = left[load].pop()
                slots[size].append(machine)
                load += size
        return slots


def _arcs(sizes: Mapping[int, object]) -> list[tuple[int, int]]:
    """Give the arcs (load, size) on paths from 0 along which sizes fall."""
    loads = {0}
    arcs: list[tuple[int, int]] = []
    for size in sorted(sizes, reverse=True):
        for start in sorted(loads):
            load = start
            while load + size <= PARTS:
                arcs.append((load, size))
                load += size
                if load in loads:
                    break  # its own arcs of this size follow, or have been made
                loads.add(load)
    return list(dict.fromkeys(arcs))


def whole(value: float | None) -> int:
    """Give the whole number that a solver meant; 0 where it gave none."""
    return round(value or 0.0)
