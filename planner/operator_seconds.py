"""What every configuration takes on every tier, learnt operator by operator.

An operator's seconds depend on the knobs of its lineage only. So a setting of a lineage
(a cell) that was measured in one configuration is known in all that share it, and a
`KnobProcess` over log seconds predicts the cells that were not met. Latency is composed:
the longest path over the DAG, for each of the placements that have been best so far.

| symbol | meaning | shape |
| --- | --- | --- |
| C, O, Q, T | configurations, operators, placements looked at, tiers | |
| cv | deviation over mean of an operator's seconds over inputs, pooled over its cells | (O,) |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pipelines.configuration import IndexArray
from pipelines.graph import PipelineGraph
from pipelines.latency import TierArray, Work, stretch_of
from pipelines.profile import FloatArray
from planner.knob_process import KnobKernel, KnobProcess, correlations
from planner.placement import FULL_STEPS, Placements
from planner.prediction import Scene, mean_work, predict
from planner.recalling import Recalled

_SHORTEST_S = 1e-9
_OWN, _INHERITED, _TOGETHER, _ANYWHERE = 0.8, 0.15, 0.05, 4.0
"""Variances of log seconds: an operator's own knobs matter most, those before it less; how long
it takes at all is open within two orders of magnitude."""
_OTHER_OWN, _OTHER_SHIFT, _BETWEEN = 0.004, 0.1, 0.01
"""How log seconds of an operator differ between queries: see `KnobKernel.own`, `shift`; variance
of the mean of a cell between them."""
_PRIOR_CV2, _PRIOR_WEIGHT = 0.3, 20.0  # pooled with what is seen; few inputs show no spikes
_MOST_CORRECTION = 1.5  # of the mean of a log-normal over its median, in logs
_MOST_PLACEMENTS = 8  # that candidates are composed for
_MOST_CONSIDERED = 8  # of recalled configurations, to find good placements


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Seconds:
    """Predictions for all configurations.

    Attributes:
        operator_s: Mean seconds of each operator on the reference machine, shape (C, O).
        hoped_s: Their harmonic mean, 1 / E[1 / seconds]: what measuring is worth divided by what
            it takes is known after one input, so that surprises are cut short and only lucky
            ones are gone on with, shape (C, O).
        log_latency: Mean of the log of the least latency at full shares, shape (C,).
        log_variance: Its variance, shape (C,).
        paid: Inputs that a cache holds of each operator, shape (C, O).
        share_cost: About what the cheapest allocation that meets the SLO costs, USD per hour (or
            machines, when no tier has a price), shape (C,); inf: none is likely to.
    """

    operator_s: FloatArray
    hoped_s: FloatArray
    log_latency: FloatArray
    log_variance: FloatArray
    paid: IndexArray
    share_cost: FloatArray


class SecondsModel:
    """Learns from the work of measured configurations.

    Args:
        scene: The query and where it runs.
        placements: All of them.
        knobs: Value indices of the configurations, shape (C, knobs).
        population: Number of inputs there are.
        structured: Whether an operator's seconds are known to depend on its lineage only; False
            (for studies): on all knobs.
    """

    def __init__(
        self,
        scene: Scene,
        placements: Placements,
        knobs: IndexArray,
        population: int,
        *,
        structured: bool = True,
    ) -> None:
        self._scene = scene
        self._all = placements
        self._population = population
        typical = np.log(scene.slo.latency_s / (2 * len(scene.graph.operators)))
        self._operators = [
            _OperatorCells(
                _Lineage.of(scene.graph, o, knobs, whole=not structured),
                _Lineage.of(scene.graph, o, knobs).which,
                float(typical),
                population,
            )
            for o in range(len(scene.graph.operators))
        ]
        self._active = [int(i) for i in _uniform(placements)[:_MOST_PLACEMENTS]]
        self._gap = _Gap()
        self._input_bytes = 0.0

    @property
    def surprise(self) -> float:
        """How much too sure of themselves the operators' models are, `>= 1`."""
        return max(1.0, float(np.mean([cells.process.surprise for cells in self._operators])))

    def spread2(self) -> float:
        """Give cv squared of a whole request, about: that of its most varying operator."""
        return max(cells.cv2 for cells in self._operators)

    def recall(self, rows: Sequence[int], earlier: Sequence[Recalled]) -> None:
        """Start from what earlier queries measured of rows, at least one, before any of this."""
        for o, cells in enumerate(self._operators):
            cells.recall(rows, earlier, o)
        self._input_bytes = float(np.mean([one.input_bytes for one in earlier]))
        for one in earlier[:_MOST_CONSIDERED]:
            self.consider(one.mean_work)

    def observe(self, row: int, work: Work, latency_s: float) -> None:
        """Take in the work of a configuration on all inputs it has met."""
        for o, cells in enumerate(self._operators):
            cells.observe(row, work.operator_s[o], work.output_bytes[o])
        self._input_bytes = float(work.input_bytes.mean())
        self._gap.observe(row, work, latency_s, self._scene, self._all, self._active)

    def refit(self) -> None:
        """Choose the hyper-parameters of all operators anew."""
        for cells in self._operators:
            cells.refit()

    def predict(self) -> Seconds:
        """Give predictions from what was seen, at least one configuration."""
        moments = [cells.moments() for cells in self._operators]
        mean = np.stack([m for m, _ in moments], axis=1)
        variance = np.stack([v for _, v in moments], axis=1)
        least, cost = self._composed(mean)
        relative = variance.sum(axis=1) / np.square(mean.sum(axis=1)) * self.surprise
        log_variance = np.log1p(relative)
        return Seconds(
            operator_s=mean,
            hoped_s=np.stack([cells.hoped() for cells in self._operators], axis=1),
            log_latency=np.log(least) - log_variance / 2 + self._gap.value,
            log_variance=log_variance,
            paid=np.stack([cells.paid() for cells in self._operators], axis=1),
            share_cost=cost,
        )

    def _composed(self, seconds: FloatArray) -> tuple[FloatArray, FloatArray]:  # (C,), (C,)
        """Give the least latency and the least cost over the placements looked at."""
        sizes = [cells.bytes() for cells in self._operators]
        least = np.full(len(seconds), np.inf)
        cheapest = np.full(len(seconds), np.inf)
        for placement in self._active:
            total, moved, weight = self._along(seconds, sizes, placement)
            least = np.minimum(least, total)
            spare = self._scene.slo.latency_s - np.exp(self._gap.value) * moved
            with np.errstate(divide="ignore", invalid="ignore"):
                cost = weight / np.where(spare > 0, spare, np.nan)
            cheapest = np.minimum(cheapest, np.where(np.isnan(cost), np.inf, cost))
        return np.maximum(least, _SHORTEST_S), cheapest

    def _along(
        self, seconds: FloatArray, sizes: list[FloatArray], placement: int
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Give latency, the part of it that is moving, and the cost weight.

        The weight is (sum over tiers of sqrt(price x busy seconds))^2: divided by the seconds
        that moving leaves of the SLO it is the least cost of a chain (Cauchy and Schwarz).
        """
        graph, infrastructure = self._scene.graph, self._scene.infrastructure
        tiers = self._all.tiers[placement]
        names = [tier.name for tier in infrastructure.tiers]
        finish: list[FloatArray] = []
        busy = np.zeros((len(seconds), len(names)))
        for o, parents in enumerate(graph.parents):
            here = int(tiers[o])
            speed = infrastructure.tiers[here].speed_of(graph.classes[o])
            # Operators that can run at once share a machine, also at full shares.
            share = np.array(float(self._all.full_steps[placement, here]) / FULL_STEPS)
            own = seconds[:, o] / speed * stretch_of(graph.operators[o], share)
            busy[:, here] += own
            sources = [(finish[p], sizes[p], names[int(tiers[p])]) for p in parents] or [
                (
                    np.zeros(len(seconds)),
                    np.full(len(seconds), self._input_bytes),
                    infrastructure.origin or names[0],
                )
            ]
            arrivals = []
            for start, size, tier in sources:
                route = infrastructure.route(tier, names[here])
                arrivals.append(start + route.delay_s + route.s_per_byte * size)
            finish.append(np.maximum.reduce(arrivals) + own)
        sinks = [graph.position(sink) for sink in graph.sinks]
        total = np.max([finish[s] for s in sinks], axis=0)
        prices = _prices(self._scene)
        # On a DAG the busy seconds add up to more than the path: scale them to it.
        moved = np.maximum(total - busy.sum(axis=1), 0.0)
        free = (busy * (prices == 0)).sum(axis=1)
        weight = np.square(np.sqrt(busy * prices).sum(axis=1))
        return total, moved + free, weight

    def consider(self, work: Work) -> None:
        """Look at the placements that are best for the average input of a configuration too."""
        full = predict(self._scene, self._all, mean_work(work), self._all.full_steps)
        best = [int(np.argmin(full.latency_s))]
        meets = np.flatnonzero(full.latency_s <= self._scene.slo.latency_s)
        if len(meets):
            price = self._all.full_steps[meets] @ _prices(self._scene)
            best.append(int(meets[np.argmin(price)]))
        for placement in best:
            if placement not in self._active:
                self._active = [*self._active, placement][-_MOST_PLACEMENTS:]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Lineage:
    """The settings that an operator's seconds depend on.

    Attributes:
        cells: Unlike settings, shape (cells, knobs of the lineage).
        which: Cell of each configuration, shape (C,).
        tables: Correlations of the values of each knob.
        own: Of each knob with a choice, whether it is the operator's own.
    """

    cells: IndexArray
    which: IndexArray
    tables: tuple[FloatArray, ...]
    own: tuple[bool, ...]

    @classmethod
    def of(
        cls, graph: PipelineGraph, o: int, knobs: IndexArray, *, whole: bool = False
    ) -> _Lineage:
        upstream = {graph.operators[i].name for i in graph.lineages[o]}
        columns = [k for k, s in enumerate(graph.slots) if whole or s.operator in upstream]
        cells, which = np.unique(knobs[:, columns], axis=0, return_inverse=True)
        slots = [graph.slots[k] for k in columns]
        name = graph.operators[o].name
        return cls(
            cells=cells,
            which=which.ravel(),
            tables=correlations(
                tuple(len(slot.knob.values) for slot in slots),
                tuple(bool(slot.knob.ordered) for slot in slots),
            ),
            own=tuple(
                whole or slot.operator == name for slot in slots if len(slot.knob.values) > 1
            ),
        )


class _OperatorCells:
    """One operator: its cells, what was seen of them, and a process over the others."""

    def __init__(
        self, lineage: _Lineage, paid: IndexArray, typical: float, population: int
    ) -> None:
        kernel = KnobKernel(
            mean=typical,
            constant=_ANYWHERE,
            effects=tuple(_OWN if mine else _INHERITED for mine in lineage.own),
            interaction=_TOGETHER,
        )
        cells = lineage.cells
        self._which = lineage.which
        self._paid_which = paid
        self._paid = np.zeros(int(paid.max()) + 1, dtype=np.int64)
        self._population = population
        self._count = np.zeros(len(cells), dtype=np.int64)
        self._mean = np.zeros(len(cells))
        self._square = np.zeros(len(cells))
        self._bytes = np.full(len(cells), np.nan)
        self.cv2 = _PRIOR_CV2
        self.process = KnobProcess(cells, lineage.tables, kernel)

    def recall(self, rows: Sequence[int], earlier: Sequence[Recalled], o: int) -> None:
        """Start from the mean of each cell, weighted by inputs."""
        members: dict[int, list[Recalled]] = {}
        for row, one in zip(rows, earlier, strict=True):
            members.setdefault(int(self._which[row]), []).append(one)
        values, noise = [], []
        for cell, ones in members.items():
            inputs = np.array([one.inputs for one in ones], dtype=float)
            part = inputs / inputs.sum()
            mean = float(part @ np.array([one.operator_s[o] for one in ones]))
            values.append(np.log(max(mean, _SHORTEST_S)))
            noise.append(min(self.cv2, 1.0) / inputs.sum() + _BETWEEN)
            self._bytes[cell] = float(part @ np.array([one.output_bytes[o] for one in ones]))
        self.process.recall(
            list(members), np.array(values), np.array(noise), own=_OTHER_OWN, shift=_OTHER_SHIFT
        )

    def observe(self, row: int, seconds: FloatArray, sizes: FloatArray) -> None:
        cell, paid = int(self._which[row]), int(self._paid_which[row])
        self._paid[paid] = max(self._paid[paid], len(seconds))
        if len(seconds) <= self._count[cell]:
            return
        first = self._count[cell] == 0
        self._count[cell] = len(seconds)
        self._mean[cell] = max(float(seconds.mean()), _SHORTEST_S)
        self._square[cell] = float(np.square(seconds - seconds.mean()).sum())
        self._bytes[cell] = float(sizes.mean())
        self._pool()
        if first:
            n = len(self.process)
            noise = np.zeros(n + 1)
            noise[n] = min(self.cv2, 1.0) / len(seconds) + 1e-4
            self.process.add(cell, float(np.log(self._mean[cell])), noise)

    def _pool(self) -> None:
        seen = self._count >= 2
        relative = (self._square[seen] / np.square(self._mean[seen])).sum()
        weight = (self._count[seen] - 1).sum()
        self.cv2 = float((_PRIOR_CV2 * _PRIOR_WEIGHT + relative) / (_PRIOR_WEIGHT + weight))

    def refit(self) -> None:
        if len(self.process) >= 4:
            self.process.refit()

    def moments(self) -> tuple[FloatArray, FloatArray]:  # (C,), (C,)
        variance = self.process.variance
        mean = np.exp(self.process.mean + np.minimum(variance / 2, _MOST_CORRECTION))
        spread = np.square(mean) * np.expm1(np.minimum(variance, 2 * _MOST_CORRECTION))
        seen = self._count > 0
        mean = np.where(seen, self._mean, mean)
        counted = np.maximum(self._count, 1)
        left = 1 - counted / self._population
        known = np.square(mean) * self.cv2 / counted * left
        return mean[self._which], np.where(seen, known, spread)[self._which]

    def hoped(self) -> FloatArray:  # (C,)
        lucky = np.exp(self.process.mean - np.minimum(self.process.variance / 2, _MOST_CORRECTION))
        return np.asarray(np.where(self._count > 0, self._mean, lucky)[self._which])

    def paid(self) -> IndexArray:  # (C,)
        return np.asarray(self._paid[self._paid_which])

    def bytes(self) -> FloatArray:  # (C,)
        # What a cell hands on where it was seen, elsewhere the geometric middle of what was.
        seen = ~np.isnan(self._bytes)
        typical = float(np.exp(np.log(np.maximum(self._bytes[seen], 1.0)).mean()))
        return np.asarray(np.where(seen, self._bytes, typical)[self._which])


class _Gap:
    """Log of the SLO's figure of a measured latency over the one composed of means."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[float, int]] = {}

    def observe(
        self,
        row: int,
        work: Work,
        latency_s: float,
        scene: Scene,
        placements: Placements,
        active: list[int],
    ) -> None:
        looked = placements.take(np.array(active))
        rough = predict(
            scene, looked, mean_work(work), looked.full_steps, figure=lambda s: s.mean(axis=-1)
        )
        least = float((rough.latency_s - rough.wait_s).min())
        if least > 0 and latency_s > 0:
            self._seen[row] = (float(np.log(latency_s / least)), len(work.input_bytes))

    @property
    def value(self) -> float:
        """The mean weighted by inputs, drawn towards 0 while there are few."""
        if not self._seen:
            return 0.0
        gaps = np.array(list(self._seen.values()))
        return float((gaps[:, 0] * gaps[:, 1]).sum() / (gaps[:, 1].sum() + 2.0))


def _uniform(placements: Placements) -> TierArray:
    """Give the placements that put all operators on one tier."""
    same = (placements.tiers == placements.tiers[:, :1]).all(axis=1)
    rows = np.flatnonzero(same)
    return rows if len(rows) else np.array([0])


def _prices(scene: Scene) -> FloatArray:  # (T,)
    tiers = scene.infrastructure.tiers
    prices = np.array([tier.price_usd_per_hour for tier in tiers])
    return prices if prices.any() else np.array([0.0 if t.dedicated else 1.0 for t in tiers])
