"""Who sits on which machine while a policy tries things out. Changes; can be put back.

The one rule: nothing is ever above capacity or quota, so that a search may stop anywhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from scheduler.packing import FreeShares

Items = tuple[tuple[int, int], ...]
"""(tier, parts) of the items of a plan, the largest first."""


class Placed(NamedTuple):
    """A query's plan, its items, and a machine for each item."""

    plan: int
    items: Items
    machines: tuple[int, ...]


class Placement:
    """The queries that are placed, and what is left of the machines and quotas.

    Attributes:
        free: Of each shared tier.
        at: Query -> where it is.
        on: Tier -> machine -> queries there.
    """

    def __init__(self, machines: Sequence[int], quota_of: dict[int, list[int]]) -> None:
        """Start with empty machines.

        Args:
            machines: Of each shared tier.
            quota_of: Query -> what its tenant may still hold of each tier, in parts. Queries of
                one tenant share one list; those without a quota are absent.
        """
        self.free = [FreeShares(count) for count in machines]
        self.at: dict[int, Placed] = {}
        self.on: list[list[set[int]]] = [[set() for _ in range(count)] for count in machines]
        self._quota_of = quota_of

    def place(self, query: int, plan: int, items: Items) -> bool:
        """Place a query whole on the fullest machines that hold its items, or not at all."""
        if query in self._quota_of and not self._take_quota(query, items):
            return False
        machines: list[int] = []
        for tier, parts in items:
            machine = self.free[tier].best(parts)
            if machine is None:
                self._free(items, machines)
                self._give_quota(query, items)
                return False
            self.free[tier].take(machine, parts)
            machines.append(machine)
        self._enter(query, Placed(plan, items, tuple(machines)))
        return True

    def occupy(self, query: int, placed: Placed) -> bool:
        """Place a query on exactly these machines, if they have the room."""
        if query in self._quota_of and not self._take_quota(query, placed.items):
            return False
        taken: list[int] = []
        for (tier, parts), machine in zip(placed.items, placed.machines, strict=True):
            if self.free[tier].on(machine) < parts:
                self._free(placed.items, taken)
                self._give_quota(query, placed.items)
                return False
            self.free[tier].take(machine, parts)
            taken.append(machine)
        self._enter(query, placed)
        return True

    def lift(self, query: int) -> Placed:
        """Take a query off its machines; give where it was."""
        placed = self.at.pop(query)
        for (tier, parts), machine in zip(placed.items, placed.machines, strict=True):
            self.free[tier].take(machine, -parts)
            self.on[tier][machine].discard(query)
        self._give_quota(query, placed.items)
        return placed

    def put_back(self, before: Mapping[int, Placed | None]) -> None:
        """Undo a step: each query goes where it was, None meaning nowhere."""
        for query in before:
            if query in self.at:
                self.lift(query)
        for query, placed in before.items():
            if placed is not None:
                self.occupy(query, placed)

    def restore(self, at: Mapping[int, Placed]) -> None:
        """Go back to an earlier `at`."""
        for query in [q for q, placed in self.at.items() if at.get(q) != placed]:
            self.lift(query)
        for query, placed in at.items():
            if query not in self.at:
                self.occupy(query, placed)

    def _enter(self, query: int, placed: Placed) -> None:
        self.at[query] = placed
        for (tier, _), machine in zip(placed.items, placed.machines, strict=True):
            self.on[tier][machine].add(query)

    def _free(self, items: Items, machines: Sequence[int]) -> None:
        for (tier, parts), machine in zip(items, machines, strict=False):
            self.free[tier].take(machine, -parts)

    def _take_quota(self, query: int, items: Items) -> bool:
        left = self._quota_of[query]
        for tier, parts in items:
            left[tier] -= parts
        if all(left[tier] >= 0 for tier, _ in items):
            return True
        self._give_quota(query, items)
        return False

    def _give_quota(self, query: int, items: Items) -> None:
        left = self._quota_of.get(query)
        if left is not None:
            for tier, parts in items:
                left[tier] += parts
