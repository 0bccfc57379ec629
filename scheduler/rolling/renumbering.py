"""Keeps queries on their machines when those of other types come or go.

The machines of a tier with types are numbered type after type, so that policies see numbers
without gaps. When a type gets machines, those of the types behind it have other numbers, and are
the same machines. The one rule: what runs is renumbered before anybody looks at it, so that no
machine changes its type under a query.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from circinus.pipelines.model.tiers import Tier
from circinus.scheduler.problem import Assignment, Slice

Numbering = Mapping[str, tuple[tuple[str, int], ...]]
"""Tier with types -> (type, how many machines) in the order of their numbers."""


def numbering(tiers: Iterable[Tier]) -> Numbering:
    """Return how the machines of those tiers are numbered that have types."""
    typed = (tier for tier in tiers if tier.types)
    return {t.name: tuple((each.name, each.machines) for each in t.types) for t in typed}


def renumbered(
    running: Mapping[str, Assignment], before: Numbering, after: Numbering
) -> dict[str, Assignment]:
    """Return what runs, by query, by the numbers that its machines have after a change.

    A machine that is gone, the last of its type going first, gets the number of no machine.
    """
    if before == after:
        return dict(running)
    return {
        query: replace(a, machines=tuple(_slice(each, before, after) for each in a.machines))
        for query, a in running.items()
    }


def _slice(at: Slice, before: Numbering, after: Numbering) -> Slice:
    if at.tier not in after:
        return at
    first, beyond = 0, sum(count for _, count in after[at.tier])
    found = _within(at.machine, before.get(at.tier, ()))
    for name, count in after[at.tier]:
        if found is not None and name == found[0] and found[1] < count:
            return at._replace(machine=first + found[1])
        first += count
    return at._replace(machine=beyond + at.machine)


def _within(machine: int, types: tuple[tuple[str, int], ...]) -> tuple[str, int] | None:
    """Return the type of a machine, and its number among those of the type; None: it is gone."""
    for name, count in types:
        if machine < count:
            return name, machine
        machine -= count
    return None
