"""How full machines are, and who sits on them while a policy tries things out.

The one rule: nothing is ever above capacity, quota or a limit of dollars, so that a search may
stop anywhere.

Best fit: an item goes to the fullest machine that still holds it, the first of equals. The items
of a plan are placed the largest first; as all items that a plan has on one tier are alike
(replicas), this finds room whenever there is any.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

from circinus.pipelines.model.plan import DemandItem
from circinus.pipelines.model.tiers import Tier
from circinus.scheduler.problem import CENT, PARTS, Slice, parts_of

Items = tuple[tuple[int, int], ...]
"""(tier, parts) of the items of a plan, the largest first."""
Q = TypeVar("Q", int, str)
"""What identifies queries: indices in a search, ids in a schedule that lives on."""


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
        """Return the parts left on a machine; 0 when there is no such machine."""
        return self._left[machine] if 0 <= machine < len(self._left) else 0

    def best(self, parts: int) -> int | None:
        """Return the fullest machine with at least `parts` left; None when there is none."""
        at = bisect_left(self._by_room, (parts, -1))
        return self._by_room[at][1] if at < len(self._by_room) else None

    def holds(self, parts: int) -> int:
        """Return how many items of so many parts the machines would hold."""
        first = bisect_left(self._by_room, (parts, -1))
        return sum(left // parts for left, _ in self._by_room[first:])

    def take(self, machine: int, parts: int) -> None:
        """Take `parts` of a machine; negative ones are returned."""
        left = self._left[machine]
        del self._by_room[bisect_left(self._by_room, (left, machine))]
        self._left[machine] = left - parts
        insort(self._by_room, (left - parts, machine))


Room = Mapping[str, FreeShares]
"""What a query finds on each tier by name; the machines of a dedicated one, its own, are empty."""
_NOWHERE = FreeShares(0)


class Fit(NamedTuple):
    """Where the items of a plan would go."""

    slices: dict[int, Slice]  # of the items that find room, by position in the demand
    # the others, the largest first, with the parts left on the emptiest machine
    missing: list[tuple[DemandItem, int]]


def empty(tiers: Iterable[Tier]) -> Room:
    """Return the room that there is when nobody is served."""
    return {tier.name: FreeShares(tier.machines) for tier in tiers}


def fit(demand: Sequence[DemandItem], room: Room) -> Fit:
    """Return where the items of a plan would go; `room` is as before afterwards."""
    slices: dict[int, Slice] = {}
    missing = []
    for i in sorted(range(len(demand)), key=lambda i: -demand[i].share):
        tier, share = demand[i]
        free = room.get(tier, _NOWHERE)
        machine = free.best(parts_of(share))
        if machine is None:
            missing.append((demand[i], free.largest))
            continue
        free.take(machine, parts_of(share))
        slices[i] = Slice(tier, machine, share)
    for tier, machine, share in slices.values():
        room[tier].take(machine, -parts_of(share))
    return Fit(slices, missing)


class Placed(NamedTuple):
    """A query's plan, its items, and a machine for each item."""

    plan: int
    items: Items
    machines: tuple[int, ...]


class DollarLimit(Generic[Q]):
    """Dollars an hour that machines and calls may still cost. Changes as queries are placed."""

    def __init__(
        self,
        most_usd_per_hour: float,
        tiers: Sequence[Tier],  # the shared ones
        calls_usd_per_hour: Callable[[Q, int], float],  # of a query with one of its plans
    ) -> None:
        self._left = most_usd_per_hour * (1 + CENT) + CENT
        self._price = [[t.price_of(machine) for machine in range(t.machines)] for t in tiers]
        self._calls: Callable[[Q, int], float] = calls_usd_per_hour

    def spend(self, query: Q, placed: Placed, on: Sequence[Sequence[set[Q]]]) -> bool:
        """Pay for calls and for machines of a query that `on` has empty; False: too dear."""
        usd = self._usd(query, placed, on)
        if usd > self._left:
            return False
        self._left -= usd
        return True

    def refund(self, query: Q, placed: Placed, on: Sequence[Sequence[set[Q]]]) -> None:
        """Take back what a query's calls cost, and those of its machines that `on` has empty."""
        self._left += self._usd(query, placed, on)

    def _usd(self, query: Q, placed: Placed, on: Sequence[Sequence[set[Q]]]) -> float:
        spots = {(t, m) for (t, _), m in zip(placed.items, placed.machines, strict=True)}
        rent = sum(self._price[t][m] for t, m in spots if not on[t][m])
        return rent + self._calls(query, placed.plan)


class Placement(Generic[Q]):
    """The queries that are placed, and what is left of machines, quotas and dollars."""

    def __init__(
        self,
        machines: Sequence[int],
        quota_of: dict[Q, list[int]],
        budget: DollarLimit[Q] | None = None,
    ) -> None:
        """Start with empty machines of each shared tier.

        `quota_of` is what a query's tenant may still hold of each tier, in parts. Queries of
        one tenant share one list; those without a quota are absent. Without a budget any money
        may be spent.
        """
        self.free = [FreeShares(count) for count in machines]  # of each shared tier
        self.at: dict[Q, Placed] = {}  # where each query is
        # tier -> machine -> queries there
        self.on: list[list[set[Q]]] = [[set() for _ in range(count)] for count in machines]
        self._quota_of: dict[Q, list[int]] = quota_of
        self._budget: DollarLimit[Q] | None = budget

    def room(self, tiers: Iterable[Tier]) -> Room:
        """Return the room that is left, of all tiers of a problem."""
        shared = iter(self.free)
        return {t.name: FreeShares(t.machines) if t.dedicated else next(shared) for t in tiers}

    def place(self, query: Q, plan: int, items: Items) -> bool:
        """Place a query whole on the fullest machines that hold its items, or not at all."""
        return self._put(query, plan, items, None)

    def occupy(self, query: Q, placed: Placed) -> bool:
        """Place a query on exactly these machines, if they have the room."""
        return self._put(query, placed.plan, placed.items, placed.machines)

    def _put(self, query: Q, plan: int, items: Items, wanted: Sequence[int] | None) -> bool:
        if query in self._quota_of and not self._take_quota(query, items):
            return False
        machines: list[int] = []
        for i, (tier, parts) in enumerate(items):
            free = self.free[tier]
            machine = free.best(parts) if wanted is None else wanted[i]
            if machine is None or free.on(machine) < parts:
                self._return(query, items, machines)
                return False
            free.take(machine, parts)
            machines.append(machine)
        placed = Placed(plan, items, tuple(machines))
        if self._budget is not None and not self._budget.spend(query, placed, self.on):
            self._return(query, items, machines)
            return False
        self.at[query] = placed
        for (tier, _), machine in zip(items, machines, strict=True):
            self.on[tier][machine].add(query)
        return True

    def _return(self, query: Q, items: Items, machines: Sequence[int]) -> None:
        """Return what a query got of machines, one for each of its first items, and its quota."""
        for (tier, parts), machine in zip(items, machines, strict=False):
            self.free[tier].take(machine, -parts)
        self._give_quota(query, items)

    def lift(self, query: Q) -> Placed:
        """Take a query off its machines; return where it was."""
        placed = self.at.pop(query)
        for (tier, _), machine in zip(placed.items, placed.machines, strict=True):
            self.on[tier][machine].discard(query)
        self._return(query, placed.items, placed.machines)
        if self._budget is not None:
            self._budget.refund(query, placed, self.on)
        return placed

    def put_back(self, before: Mapping[Q, Placed | None]) -> None:
        """Undo a step: each query goes where it was, None meaning nowhere."""
        for query in before:
            if query in self.at:
                self.lift(query)
        for query, placed in before.items():
            if placed is not None:
                self.occupy(query, placed)

    def restore(self, at: Mapping[Q, Placed]) -> None:
        """Go back to an earlier `at`."""
        moved = [q for q in {**at, **self.at} if at.get(q) != self.at.get(q)]
        self.put_back({q: at.get(q) for q in moved})

    def _take_quota(self, query: Q, items: Items) -> bool:
        left = self._quota_of[query]
        for tier, parts in items:
            left[tier] -= parts
        if all(left[tier] >= 0 for tier, _ in items):
            return True
        self._give_quota(query, items)
        return False

    def _give_quota(self, query: Q, items: Items) -> None:
        left = self._quota_of.get(query)
        if left is not None:
            for tier, parts in items:
                left[tier] += parts
