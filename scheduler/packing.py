"""How full each machine is, and where the items of a plan find room.

Best fit: an item goes to the fullest machine that still holds it, the first of equals.
The items of a plan are placed the largest first; as all items that a plan has on one
tier are alike (replicas), this finds room whenever there is any.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence

from pipelines.infrastructure import Tier
from pipelines.plan import DemandItem
from scheduler.problem import PARTS, Slice, parts_of


class FreeShares:
    """What is left of the machines of one tier, in parts. Changes as items are placed."""

    def __init__(self, machines: int) -> None:
        self._left = [PARTS] * machines
        self._by_room = [(PARTS, machine) for machine in range(machines)]  # ascending

    @property
    def largest(self) -> int:
        """Parts left on the emptiest machine; 0 without machines."""
        return self._by_room[-1][0] if self._by_room else 0

    def on(self, machine: int) -> int:
        """Give the parts left on a machine; 0 when there is no such machine."""
        return self._left[machine] if 0 <= machine < len(self._left) else 0

    def best(self, parts: int) -> int | None:
        """Give the fullest machine with at least `parts` left; None when there is none."""
        at = bisect_left(self._by_room, (parts, -1))
        return self._by_room[at][1] if at < len(self._by_room) else None

    def take(self, machine: int, parts: int) -> None:
        """Take `parts` of a machine; negative ones are given back."""
        left = self._left[machine]
        del self._by_room[bisect_left(self._by_room, (left, machine))]
        self._left[machine] = left - parts
        insort(self._by_room, (left - parts, machine))


class Packing:
    """What is left of all machines. Changes as plans are placed; a plan is placed whole or not."""

    def __init__(self, tiers: Sequence[Tier]) -> None:
        self._shared = {t.name: FreeShares(t.machines) for t in tiers if not t.dedicated}
        self._own = {t.name: t.machines for t in tiers if t.dedicated}

    def place(self, demand: Sequence[DemandItem]) -> tuple[Slice, ...] | None:
        """Give the slices of a plan's items, in the order of the demand, and take them.

        Returns:
            None when not all items find room; nothing is taken then.
        """
        slices, missing = self._try(demand)
        if missing:
            self._give_back(slices)
            return None
        return tuple(slices[i] for i in range(len(demand)))

    def missing(self, demand: Sequence[DemandItem]) -> tuple[tuple[DemandItem, int], ...]:
        """Give the items that find no room, with the most parts left on one machine for each.

        The largest item comes first. Takes nothing.
        """
        slices, missing = self._try(demand)
        self._give_back(slices)
        return tuple((demand[i], left) for i, left in missing)

    def occupy(self, slices: Sequence[Slice]) -> bool:
        """Take exactly these slices, if all machines exist and have the room; else nothing."""
        free = self._free(item.tier for item in slices)
        taken: dict[int, Slice] = {}
        for i, item in enumerate(slices):
            if free[item.tier].on(item.machine) < parts_of(item.share):
                self._give_back(taken)
                return False
            free[item.tier].take(item.machine, parts_of(item.share))
            taken[i] = item
        return True

    def _try(self, demand: Sequence[DemandItem]) -> tuple[dict[int, Slice], list[tuple[int, int]]]:
        free = self._free(item.tier for item in demand)
        slices: dict[int, Slice] = {}
        missing = []
        for i in sorted(range(len(demand)), key=lambda i: -demand[i].share):
            tier = free[demand[i].tier]
            parts = parts_of(demand[i].share)
            machine = tier.best(parts)
            if machine is None:
                missing.append((i, tier.largest))
                continue
            tier.take(machine, parts)
            slices[i] = Slice(demand[i].tier, machine, demand[i].share)
        return slices, missing

    def _free(self, tiers: Iterable[str]) -> dict[str, FreeShares]:
        # Each query's own machines are empty before it comes; an unknown tier has none.
        return {
            tier: self._shared[tier]
            if tier in self._shared
            else FreeShares(self._own.get(tier, 0))
            for tier in set(tiers)
        }

    def _give_back(self, slices: dict[int, Slice]) -> None:
        for tier, machine, share in slices.values():
            if tier in self._shared:
                self._shared[tier].take(machine, -parts_of(share))
