"""How the integer programs of `scheduler.ilp` count the items on equal machines of a tier.

Machines are interchangeable as long as equal parts of them are in use; one of two ways removes
that symmetry, see there. What stays on a machine is no variable: the machine is that much smaller.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pulp

from circinus.scheduler.compiled.placement import FreeShares
from circinus.scheduler.problem import PARTS

Sizes = Mapping[int, pulp.LpAffineExpression]
"""Size -> how many items of it are placed, of a tier."""


@dataclass(frozen=True, slots=True)
class Machines:
    """Machines of a tier that have room, the fullest first."""

    numbers: tuple[int, ...]
    used: tuple[int, ...]  # parts of each that are in use whatever is chosen

    @classmethod
    def of(cls, free: FreeShares, machines: int, most_items: int) -> Machines:
        """Return the machines in use, and as many empty ones as items could fill."""
        used = {k: PARTS - free.on(k) for k in range(machines)}
        busy = sorted((k for k, parts in used.items() if parts), key=lambda k: (-used[k], k))
        empty = [k for k, parts in used.items() if not parts][:most_items]
        numbers = (*(k for k in busy if used[k] < PARTS), *empty)
        return cls(numbers, tuple(used[k] for k in numbers))


class Ordered:
    """Machines by number, the fuller ones first; `rented` of the empty ones hold anything."""

    def __init__(self, program: pulp.LpProblem, m: int, machines: Machines, placed: Sizes) -> None:
        self._numbers, used = machines.numbers, machines.used
        self._n = [
            {
                size: program.add_variable(f"n_{m}_{k}_{size}", 0, PARTS // size, cat="Integer")
                for size in placed
            }
            for k in range(len(used))
        ]
        z = {
            k: program.add_variable(f"z_{m}_{k}", cat="Binary")
            for k, parts in enumerate(used)
            if not parts
        }
        loads = [
            # In parts, whole numbers: with shares of a millionth presolve finds no way at all.
            pulp.LpAffineExpression([(n, size) for size, n in row.items()])
            for row in self._n
        ]
        for k, parts in enumerate(used):
            program += loads[k] <= (PARTS * z[k] if k in z else PARTS - parts)
            if k and used[k - 1] == parts:
                program += loads[k - 1] >= loads[k]
                if k in z:
                    program += z[k - 1] >= z[k]
        for size, wanted in placed.items():
            program += pulp.lpSum(row[size] for row in self._n) == wanted
        self.rented = pulp.lpSum(z.values())

    def machines_of_sizes(self) -> dict[int, list[int]]:
        """Return, for each size, a machine for every item of it."""
        slots: dict[int, list[int]] = defaultdict(list)
        for number, row in zip(self._numbers, self._n, strict=True):
            for size, n in row.items():
                slots[size] += [number] * whole(n.value())
        return slots


class Flow:  # deviates: machines-as-flows
    """Machines as paths through loads; `rented` of the empty ones hold anything."""

    def __init__(self, program: pulp.LpProblem, m: int, machines: Machines, placed: Sizes) -> None:
        self._machines = machines
        self._arcs = {
            (a, size): program.add_variable(
                f"f_{m}_{a}_{size}", 0, len(machines.used), cat="Integer"
            )
            for a, size in _arcs(placed, machines.used)
        }
        starts = Counter(machines.used)
        self.rented = program.add_variable(f"z_{m}", 0, starts[0], cat="Integer")
        out: dict[int, list[pulp.LpVariable]] = defaultdict(list)
        into: dict[int, list[pulp.LpVariable]] = defaultdict(list)
        for (a, size), f in self._arcs.items():
            out[a].append(f)
            into[a + size].append(f)
        for a, leaving in out.items():
            arriving = pulp.lpSum(into[a]) + starts[a] if a else self.rented
            program += pulp.lpSum(leaving) <= arriving
        for size, wanted in placed.items():
            of_size = [f for (_, s), f in self._arcs.items() if s == size]
            program += pulp.lpSum(of_size) >= wanted

    def machines_of_sizes(self) -> dict[int, list[int]]:
        """Return, for each size, a machine for every item of it."""
        left: dict[int, list[int]] = defaultdict(list)  # load -> sizes put on top of it
        for (a, size), f in self._arcs.items():
            left[a] += [size] * whole(f.value())
        slots: dict[int, list[int]] = defaultdict(list)
        for number, load in zip(self._machines.numbers, self._machines.used, strict=True):
            while left[load]:
                size = left[load].pop()
                slots[size].append(number)
                load += size
        return slots


def _arcs(sizes: Iterable[int], starts: Iterable[int]) -> list[tuple[int, int]]:
    """Return the arcs (load, size) on paths from some loads along which sizes fall."""
    loads = {0, *starts}
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
    """Return the whole number that a solver meant; 0 where it gave none."""
    return round(value or 0.0)
