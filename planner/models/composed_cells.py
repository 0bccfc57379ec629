"""The latency and the cost of all configurations on one placement at full shares.

When an operator ends depends on the knobs of its lineage only, as its seconds do. So ends
are composed by cells (see `planner.models.operator_seconds`): only those of the last operators
are as many as configurations.

| symbol | meaning |
| --- | --- |
| C, O, T | configurations, operators, tiers in use |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import NamedTuple

import numpy as np

from circinus.pipelines.model.configuration import IndexArray
from circinus.pipelines.model.latency import TierArray, stretch_of, waits_apart
from circinus.pipelines.model.profile import FloatArray
from circinus.pipelines.model.query import PlanningContext
from circinus.pipelines.model.shares import FULL_STEPS


class CellAmounts(NamedTuple):
    """What is believed of operators, each by its cells."""

    seconds: Sequence[FloatArray]  # mean of each on the reference machine
    waiting: Sequence[FloatArray]  # the part of these that it waits, in [0, 1]
    sizes: Sequence[FloatArray]  # bytes that each hands on
    input_bytes: float  # of an input

    def at(self, which: Sequence[IndexArray]) -> CellAmounts:
        """Return the same by configurations, of which these are the cells."""
        parts = (self.seconds, self.waiting, self.sizes)
        seconds, waiting, sizes = (
            [values[cells] for values, cells in zip(part, which, strict=True)] for part in parts
        )
        return CellAmounts(seconds, waiting, sizes, self.input_bytes)


class CellComposer:
    """Composes configurations on one placement: a row of `Placements`.

    An operator that may call is where its settings have it, not always where the placement does.
    """

    def __init__(
        self,
        context: PlanningContext,
        which: Sequence[IndexArray],  # the cell of each configuration, for each operator, (C,)
        tiers: TierArray,
        slices: TierArray,  # largest share of all operators of each tier together, in steps
        moved: Mapping[int, TierArray] | None = None,  # operator that may call -> tiers by cells
    ) -> None:
        graph, infrastructure = context.graph, context.infrastructure
        self.tiers, self.slices, moved = tiers, slices, dict(moved or {})
        self._cells: Sequence[IndexArray] | None = None
        if any(graph.beside):  # when one ends depends on its neighbours' knobs, too
            self._cells, moved = which, {o: on[which[o]] for o, on in moved.items()}
            which = [np.arange(len(own)) for own in which]
        self._which, self._moved = which, moved
        firsts = [np.unique(own, return_index=True)[1] for own in which]
        self._sources = [
            [(p, which[p][first]) for p in parents]  # a parent's cell, by own cells
            for first, parents in zip(firsts, graph.parents, strict=True)
        ]
        self._sinks = [(o, which[o]) for o in map(graph.position, graph.sinks)]
        factors = np.array(
            [
                [
                    float(stretch_of(operator, np.array(_share(steps)))) / tier.speed_of(name)
                    for tier, steps in zip(infrastructure.tiers, slices, strict=True)
                ]
                for operator, name in zip(graph.operators, graph.classes, strict=True)
            ]
        )  # (operators, tiers)
        self._factors = [factors[o, moved.get(o, tier)] for o, tier in enumerate(tiers)]
        apart = waits_apart(graph, infrastructure)
        self._apart = [apart[o, moved.get(o, tier)] for o, tier in enumerate(tiers)]
        origin = infrastructure.position(infrastructure.origin or infrastructure.tiers[0].name)
        routes = np.array(
            [[(r.delay_s, r.s_per_byte) for r in row] for row in infrastructure.routes]
        )
        self._routes = [
            [routes[self._at(p, cells), moved.get(o, tiers[o])] for p, cells in self._sources[o]]
            or [routes[origin, moved.get(o, tiers[o])]]
            for o in range(len(tiers))
        ]
        sliced = np.array([not tier.remote for tier in infrastructure.tiers])
        at = [moved.get(o, tier) for o, tier in enumerate(tiers)]
        self._neighbours = [
            [(e, sliced[at[o]] & (at[e] == at[o])) for e in before]
            for o, before in enumerate(graph.beside)
        ]  # see `pipelines.model.latency`
        used = np.unique(np.concatenate([tiers, *moved.values()]))
        on = [
            moved[o][which[o]] if o in moved else np.array([tier]) for o, tier in enumerate(tiers)
        ]
        each = [
            (used[:, None] == there)
            * (self._factors[o][which[o]] if o in moved else self._factors[o])
            for o, there in enumerate(on)
        ]  # of each operator: (T, C), or (T, 1) where it is the same for all
        self._busy = each if moved else [np.concatenate(each, axis=1)]
        self._prices = prices(context)[used]
        self._bound_s = context.slo.latency_s

    def tiers_at(self, row: int) -> TierArray:  # (O,)
        """Return where the operators of a configuration are."""
        where = self.tiers.copy()
        for o, by_cells in self._moved.items():
            where[o] = by_cells[self._which[o][row]]
        return where

    def _at(self, o: int, cells: IndexArray) -> TierArray:
        """Return the tiers of an operator in some of its cells; one where all agree."""
        return self._moved[o][cells] if o in self._moved else self.tiers[o]

    def compose(
        self,
        amounts: CellAmounts,
        operator_s: FloatArray,  # means by configurations, (O, C)
        waited_s: FloatArray,  # of these, in which operators wait, (O, C)
        gap: float,  # what latencies are to be multiplied by
    ) -> tuple[FloatArray, FloatArray]:  # (C,), (C,)
        """Return latencies, and about what the cheapest shares that meet the SLO cost.

        That is (sum over tiers of sqrt(price x busy seconds))^2 over the seconds that moving
        leaves of the SLO: the least cost of a chain (Cauchy and Schwarz); inf: it leaves none.
        """
        ends = self._ends(amounts if self._cells is None else amounts.at(self._cells))
        if waited_s.any():  # no share shortens that: it is left to the seconds of moving
            apart = [
                each[cell] if o in self._moved else np.broadcast_to(each, cell.shape)
                for o, (each, cell) in enumerate(zip(self._apart, self._which, strict=True))
            ]
            operator_s = operator_s - waited_s * np.stack(apart)
        if self._moved:
            parts = zip(self._busy, operator_s, strict=True)
            busy = reduce(np.add, [weights * own for weights, own in parts])
        else:
            busy = self._busy[0] @ operator_s
        # On a DAG the busy seconds add up to more than the path: scale them to it.
        moved = np.maximum(ends - busy.sum(axis=0), 0.0) + (self._prices == 0) @ busy
        weight = np.square(np.sqrt(self._prices) @ np.sqrt(busy))
        spare = self._bound_s - gap * moved
        never = np.full(len(ends), np.inf)
        return ends, np.divide(weight, spare, out=never, where=spare > 0)

    def _ends(self, amounts: CellAmounts) -> FloatArray:  # (C,)
        """Return when the last operator ends."""
        ends: list[FloatArray] = []
        for o, (sources, routes) in enumerate(zip(self._sources, self._routes, strict=True)):
            arrivals = [
                ends[p][cell] + (route[..., 0] + route[..., 1] * amounts.sizes[p][cell])
                for (p, cell), route in zip(sources, routes, strict=False)
            ] or [routes[0][..., 0] + routes[0][..., 1] * amounts.input_bytes]
            turns = [np.where(same, ends[e], 0.0) for e, same in self._neighbours[o]]
            factor = self._factors[o]
            factor = factor + amounts.waiting[o] * self._apart[o] * (1 - factor)
            ends.append(reduce(np.maximum, arrivals + turns) + factor * amounts.seconds[o])
        return reduce(np.maximum, [ends[o][cell] for o, cell in self._sinks])


def prices(context: PlanningContext) -> FloatArray:  # (T,)
    """Return USD per hour of every tier.

    Machines, of those that are shared, when none has one and nothing is paid by the call.
    """
    tiers = context.infrastructure.tiers
    usd_per_hour = np.array([tier.price_usd_per_hour for tier in tiers])
    if usd_per_hour.any() or any(tier.remote for tier in tiers):
        return usd_per_hour
    return np.array([0.0 if tier.dedicated else 1.0 for tier in tiers])


def _share(steps: int) -> float:
    """Return the share of a machine; 1 where a tier has none, or no operator of the placement."""
    return steps / FULL_STEPS if steps else 1.0
