"""The least cost over every way to put operators into slices of tiers, and all of their shares."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from circinus.pipelines.model.infrastructure import divided
from circinus.pipelines.model.latency import Work, compose
from circinus.pipelines.model.query import PlanningContext

MOST_SLICES = 3
"""Of four operators in slices of their own, two that never run at once may as well share one, on
the larger of both shares: the branches of a diamond leave two such."""


def cheapest_in_slices(context: PlanningContext, work: Work) -> float:
    """Return the least US dollars per hour of one request at a time in time; inf: there are none.

    Every slice has a machine of its own, so a tier has as many at most as it has machines.
    """
    graph, tiers = context.graph, context.infrastructure.tiers
    count = len(graph.operators)
    names = {f"{t.name}.{n}": t.name for t in tiers for n in range(2, MOST_SLICES + 1)}
    own = divided(context.infrastructure, names)
    price = np.array([tier.price_usd_per_hour for tier in own.tiers])
    least = np.inf
    for where in itertools.product(range(len(tiers)), repeat=count):
        for parts in _partitions(count):
            slices: dict[tuple[int, int], str] = {}
            for tier, part in zip(where, parts, strict=True):
                number = 1 + sum(of == tier for of, _ in slices if (tier, part) not in slices)
                name = tiers[tier].name + (f".{number}" if number > 1 else "")
                slices.setdefault((tier, part), name)
            of_tier = [sum(of == t for of, _ in slices) for t in range(len(tiers))]
            if len(slices) > MOST_SLICES or any(
                n > t.machines for n, t in zip(of_tier, tiers, strict=True)
            ):
                continue
            on = [own.position(slices[key]) for key in zip(where, parts, strict=True)]
            used = sorted(set(on))
            grid = np.array(list(itertools.product(range(1, 21), repeat=len(used)))) * 0.05
            usd = grid @ price[used]
            shares = grid[:, [used.index(slice_) for slice_ in on]]
            cheaper = np.flatnonzero(usd < least)
            placed = np.tile(on, (len(cheaper), 1))
            seconds = compose(graph, own, work, placed, shares[cheaper])
            good = cheaper[context.statistic.of(seconds) <= context.slo.latency_s]
            least = min(least, float(usd[good].min(initial=np.inf)))
    return least


def _partitions(count: int) -> Iterator[tuple[int, ...]]:
    """Yield every partition of so many things: the number of the part that each is in."""
    for numbers in itertools.product(range(count), repeat=count):
        if all(n <= max(numbers[:i], default=-1) + 1 for i, n in enumerate(numbers)):
            yield numbers
