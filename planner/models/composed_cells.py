"""The latency and the cost of all configurations on one placement at full shares.

When an operator ends depends on the knobs of its lineage only, as its seconds do. So ends
are composed by cells (see `planner.models.operator_seconds`): only those of the last operators
are as many as configurations.

| symbol | meaning |
| --- | --- |
| C, O, T | configurations, operators, tiers in use |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from circinus.pipelines.configuration import IndexArray
from circinus.pipelines.fitting import PlanningContext
from circinus.pipelines.graph import PipelineGraph
from circinus.pipelines.latency import TierArray, stretch_of
from circinus.pipelines.profile import FloatArray
from circinus.planner.deployment.placement import FULL_STEPS


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Cells:
    """What is known of operators."""

    # Mean of each operator on the reference machine, by its cells, shape (cells,).
    seconds: Sequence[FloatArray]
    sizes: Sequence[FloatArray]  # bytes that each hands on, by its cells, shape (cells,)
    input_bytes: float  # of an input


class CellMaps:
    """Which cells belong together.

    `which` has the cell of each configuration, for each operator, shape (C,).
    """

    def __init__(self, graph: PipelineGraph, which: Sequence[IndexArray]) -> None:
        firsts = [np.unique(own, return_index=True)[1] for own in which]
        self.sources = [
            [(p, which[p][first]) for p in parents]  # a parent's cell, by own cells
            for first, parents in zip(firsts, graph.parents, strict=True)
        ]
        self.sinks = [(o, which[o]) for o in map(graph.position, graph.sinks)]


class CellComposer:
    """Composes configurations on one placement: a row of `Placements`."""

    def __init__(
        self, context: PlanningContext, maps: CellMaps, tiers: TierArray, full_steps: TierArray
    ) -> None:
        graph, infrastructure = context.graph, context.infrastructure
        self._maps = maps
        # Operators that can run at once share a machine, also at full shares.
        self._factors = [
            float(stretch_of(operator, np.array(full_steps[tier] / FULL_STEPS)))
            / infrastructure.tiers[tier].speed_of(name)
            for operator, name, tier in zip(graph.operators, graph.classes, tiers, strict=True)
        ]
        origin = infrastructure.position(infrastructure.origin or infrastructure.tiers[0].name)
        self._routes = [
            [infrastructure.routes[source][tier] for source in tiers[list(parents)]]
            or [infrastructure.routes[origin][tier]]
            for parents, tier in zip(graph.parents, tiers, strict=True)
        ]
        used, on = np.unique(tiers, return_inverse=True)
        self._busy = (np.arange(len(used))[:, None] == on) * np.array(self._factors)  # (T, O)
        self._prices = prices(context)[used]
        self._bound_s = context.slo.latency_s

    def compose(
        self, cells: Cells, operator_s: FloatArray, gap: float
    ) -> tuple[FloatArray, FloatArray]:  # (C,), (C,)
        """Give latencies, and about what the cheapest shares that meet the SLO cost.

        That is (sum over tiers of sqrt(price x busy seconds))^2 over the seconds that moving
        leaves of the SLO: the least cost of a chain (Cauchy and Schwarz); inf: it leaves none.
        Operators' seconds are by configurations, shape (O, C); latencies are to be multiplied by
        `gap`.
        """
        ends = self._ends(cells)
        busy = self._busy @ operator_s
        # On a DAG the busy seconds add up to more than the path: scale them to it.
        moved = np.maximum(ends - busy.sum(axis=0), 0.0) + (self._prices == 0) @ busy
        weight = np.square(np.sqrt(self._prices) @ np.sqrt(busy))
        spare = self._bound_s - gap * moved
        never = np.full(len(ends), np.inf)
        return ends, np.divide(weight, spare, out=never, where=spare > 0)

    def _ends(self, cells: Cells) -> FloatArray:  # (C,)
        """Give when the last operator ends."""
        ends: list[FloatArray] = []
        parts = zip(self._maps.sources, self._routes, cells.seconds, self._factors, strict=True)
        for sources, routes, seconds, factor in parts:
            arrivals = [
                (ends[p] + (route.delay_s + route.s_per_byte * cells.sizes[p]))[cell]
                for (p, cell), route in zip(sources, routes, strict=False)
            ] or [np.array(routes[0].delay_s + routes[0].s_per_byte * cells.input_bytes)]
            ends.append(reduce(np.maximum, arrivals) + factor * seconds)
        return reduce(np.maximum, [ends[o][cell] for o, cell in self._maps.sinks])


def prices(context: PlanningContext) -> FloatArray:  # (T,)
    """Give USD per hour of every tier; machines, of those that are shared, when none has one."""
    tiers = context.infrastructure.tiers
    found = np.array([tier.price_usd_per_hour for tier in tiers])
    return found if found.any() else np.array([0.0 if t.dedicated else 1.0 for t in tiers])
