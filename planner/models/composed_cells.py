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
from functools import reduce

import numpy as np

from circinus.pipelines.configuration import IndexArray
from circinus.pipelines.latency import TierArray, stretch_of
from circinus.pipelines.profile import FloatArray
from circinus.pipelines.query import PlanningContext
from circinus.planner.deployment.placement import FULL_STEPS


class CellComposer:
    """Composes configurations on one placement: a row of `Placements`."""

    def __init__(
        self,
        context: PlanningContext,
        which: Sequence[IndexArray],  # the cell of each configuration, for each operator, (C,)
        tiers: TierArray,
        full_steps: TierArray,
    ) -> None:
        graph, infrastructure = context.graph, context.infrastructure
        firsts = [np.unique(own, return_index=True)[1] for own in which]
        self._sources = [
            [(p, which[p][first]) for p in parents]  # a parent's cell, by own cells
            for first, parents in zip(firsts, graph.parents, strict=True)
        ]
        self._sinks = [(o, which[o]) for o in map(graph.position, graph.sinks)]
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
        self,
        seconds: Sequence[FloatArray],  # mean of each operator on the reference machine, by cells
        sizes: Sequence[FloatArray],  # bytes that each hands on, by its cells
        input_bytes: float,  # of an input
        operator_s: FloatArray,  # means by configurations, (O, C)
        gap: float,  # what latencies are to be multiplied by
    ) -> tuple[FloatArray, FloatArray]:  # (C,), (C,)
        """Give latencies, and about what the cheapest shares that meet the SLO cost.

        That is (sum over tiers of sqrt(price x busy seconds))^2 over the seconds that moving
        leaves of the SLO: the least cost of a chain (Cauchy and Schwarz); inf: it leaves none.
        """
        ends = self._ends(seconds, sizes, input_bytes)
        busy = self._busy @ operator_s
        # On a DAG the busy seconds add up to more than the path: scale them to it.
        moved = np.maximum(ends - busy.sum(axis=0), 0.0) + (self._prices == 0) @ busy
        weight = np.square(np.sqrt(self._prices) @ np.sqrt(busy))
        spare = self._bound_s - gap * moved
        never = np.full(len(ends), np.inf)
        return ends, np.divide(weight, spare, out=never, where=spare > 0)

    def _ends(
        self, seconds: Sequence[FloatArray], sizes: Sequence[FloatArray], input_bytes: float
    ) -> FloatArray:  # (C,)
        """Give when the last operator ends."""
        ends: list[FloatArray] = []
        parts = zip(self._sources, self._routes, seconds, self._factors, strict=True)
        for sources, routes, own, factor in parts:
            arrivals = [
                (ends[p] + (route.delay_s + route.s_per_byte * sizes[p]))[cell]
                for (p, cell), route in zip(sources, routes, strict=False)
            ] or [np.array(routes[0].delay_s + routes[0].s_per_byte * input_bytes)]
            ends.append(reduce(np.maximum, arrivals) + factor * own)
        return reduce(np.maximum, [ends[o][cell] for o, cell in self._sinks])


def prices(context: PlanningContext) -> FloatArray:  # (T,)
    """Give USD per hour of every tier; machines, of those that are shared, when none has one."""
    tiers = context.infrastructure.tiers
    found = np.array([tier.price_usd_per_hour for tier in tiers])
    return found if found.any() else np.array([0.0 if t.dedicated else 1.0 for t in tiers])
