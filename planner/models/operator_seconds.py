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
from functools import reduce

import numpy as np
from scipy.special import ndtr

from circinus.pipelines.model.configuration import Configuration, IndexArray
from circinus.pipelines.model.endpoints import Usage
from circinus.pipelines.model.latency import TierArray, Work, compose
from circinus.pipelines.model.profile import FloatArray
from circinus.pipelines.model.query import PlanningContext
from circinus.pipelines.model.shares import SHARE_STEP
from circinus.planner.deployment.callers import Callers
from circinus.planner.deployment.costs import usual_rate
from circinus.planner.deployment.placement import Placements
from circinus.planner.deployment.prediction import mean_work, predict
from circinus.planner.models.composed_cells import CellAmounts, CellComposer, prices
from circinus.planner.models.history import ConfigurationRecord
from circinus.planner.models.knob_process import KnobProcess
from circinus.planner.models.operator_cells import (
    OperatorDollars,
    OperatorSeconds,
    called_by_cells,
    dollars_kernel,
)

_SHORTEST_S = 1e-9
_SECONDS_PER_HOUR = 3600.0
_USD = Usage._fields.index("usd")
_TINY = 1e-12
_MOST_PLACEMENTS = 8  # that candidates are composed for
_MOST_CONSIDERED = 8  # of recalled configurations, to find good placements


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Seconds:
    """Predictions for all configurations."""

    # Harmonic means of each operator's seconds on the reference machine, 1 / E[1 / seconds], shape
    # (C, O): what measuring is worth divided by what it takes is known after one input, so that
    # surprises are cut short and only lucky ones are gone on with.
    hoped_s: FloatArray
    log_latency: FloatArray  # mean of the log of the least latency at full shares, shape (C,)
    log_variance: FloatArray  # its variance, shape (C,)
    paid: IndexArray  # inputs that a cache holds of each operator, shape (C, O)
    # About what the cheapest allocation that meets the SLO costs, USD per hour (or machines, when
    # no tier has a price) with calls at `costs.usual_rate`, shape (C,); inf: none is likely to.
    share_cost: FloatArray

    def expected_saving(self, best: float) -> FloatArray:  # (C,)
        """Return E[max(best - cost, 0)], the cost log-normal with the variance of the latency."""
        deviation = np.sqrt(self.log_variance + _TINY)
        median = self.share_cost * np.exp(-self.log_variance / 2)
        with np.errstate(divide="ignore", invalid="ignore"):
            d = (np.log(max(best, _TINY)) - np.log(median)) / deviation
            saved = best * ndtr(d) - self.share_cost * ndtr(d - deviation)
        return np.where(np.isfinite(self.share_cost), np.maximum(saved, 0.0), 0.0)

    def at(self, rows: IndexArray) -> Seconds:
        """Return the same of some configurations."""
        return Seconds(
            hoped_s=self.hoped_s.T.take(rows, axis=1).T,
            log_latency=self.log_latency[rows],
            log_variance=self.log_variance[rows],
            paid=self.paid.T.take(rows, axis=1).T,
            share_cost=self.share_cost[rows],
        )


class SecondsModel:
    """Learns from the work of measured configurations."""

    def __init__(
        self,
        context: PlanningContext,
        placements: Placements,  # all of them
        knobs: IndexArray,  # value indices of the configurations, (C, knobs)
        population: int,
        *,
        # Whether an operator's seconds are known to depend on its lineage only; False (for
        # studies): on all knobs.
        structured: bool = True,
        callers: Callers | None = None,  # who calls what; None: nobody anything
    ) -> None:
        self._context = context
        self._all = placements
        self._callers = callers
        typical = np.log(context.slo.latency_s / (2 * len(context.graph.operators)))
        self._operators = [
            OperatorSeconds(
                context.graph, o, knobs, float(typical), population, whole=not structured
            )
            for o in range(len(context.graph.operators))
        ]
        self._composers: dict[tuple[int, ...], CellComposer] = {}
        self._called = {} if callers is None else self._called_by_cells(callers)
        self._dollars = {o: self._dollars_of(o) for o in self._called}
        # Those all of whose operators that need a machine are on one tier.
        used = placements.widths > 0
        one_tier = np.flatnonzero(used.sum(axis=1) <= 1)
        _, firsts = np.unique(used[one_tier], axis=0, return_index=True)
        for placement in one_tier[np.sort(firsts)].tolist()[:_MOST_PLACEMENTS] or [0]:
            self._look_at(placements, placement)
        # Row -> log of the SLO's figure of its latency over the one composed of means; its inputs.
        self._gaps: dict[int, tuple[float, int]] = {}
        self._input_bytes = 0.0

    def spread2(self) -> float:
        """Return cv squared of a whole request, about: that of its most varying operator."""
        return max(cells.cv2 for cells in self._operators)

    def recall(self, rows: Sequence[int], earlier: Sequence[ConfigurationRecord]) -> None:
        """Start from what earlier queries measured of rows, at least one, before any of this."""
        for o, cells in enumerate(self._operators):
            cells.recall(rows, earlier, o)
        self._input_bytes = float(np.mean([one.input_bytes for one in earlier]))
        for one in earlier[:_MOST_CONSIDERED]:
            self.consider(one.mean_work, one.configuration)

    def observe(self, row: int, work: Work, latency_s: float) -> None:
        """Learn the work of a configuration on all inputs it has met."""
        waiting = work.waiting
        for o, cells in enumerate(self._operators):
            cells.observe(row, work.operator_s[o], work.output_bytes[o], float(waiting[o]))
        self._input_bytes = float(work.input_bytes.mean())
        for o, dollars in self._dollars.items():
            if work.used is not None:
                dollars.observe(int(self._operators[o].which[row]), work.used[o, _USD])
        context, composers = self._context, self._composers.values()
        tiers = np.stack([composer.tiers_at(row) for composer in composers])
        full = np.stack(
            [composer.slices[on] for composer, on in zip(composers, tiers, strict=True)]
        )
        shares = np.where(full > 0, np.round(full * SHARE_STEP, 9), 1.0)
        mean = mean_work(work)
        composed = compose(context.graph, context.infrastructure, mean, tiers, shares)
        if (least := float(composed.min())) > 0 and latency_s > 0:
            self._gaps[row] = (float(np.log(latency_s / least)), len(work.input_bytes))

    def refit(self) -> None:
        """Choose the hyper-parameters of all operators anew."""
        for cells in self._operators:
            cells.refit()

    def predict(self) -> Seconds:
        """Return predictions from the observed configurations, at least one."""
        moments = [cells.moments() for cells in self._operators]
        sizes = [cells.bytes() for cells in self._operators]
        which = [cells.which for cells in self._operators]
        # Operators first in memory: sums over them are taken column by column.
        mean, variance, hoped = (
            np.stack([values[cell] for values, cell in zip(kind, which, strict=True)])
            for kind in zip(*moments, strict=True)
        )
        seconds, gap = [of_cells for of_cells, _, _ in moments], self._gap()
        waiting = [cells.waiting() for cells in self._operators]
        of_all = np.stack([part[cell] for part, cell in zip(waiting, which, strict=True)])
        amounts = CellAmounts(seconds, waiting, sizes, self._input_bytes)
        composed = [
            composer.compose(amounts, mean, mean * of_all, float(np.exp(gap)))
            for composer in self._composers.values()
        ]
        least = np.maximum(reduce(np.minimum, [latency for latency, _ in composed]), _SHORTEST_S)
        # How much too sure of themselves the operators' models are.
        residual = float(np.mean([cells.process.squared_residual for cells in self._operators]))
        relative = variance.sum(axis=0) / np.square(mean.sum(axis=0)) * max(1.0, residual)
        log_variance = np.log1p(relative)
        # What calls cost is paid when they are measured, too: as seconds of the dearest machine.
        paid_usd = np.zeros_like(hoped)
        for o, dollars in self._dollars.items():
            paid_usd[o] = dollars.expected()[which[o]]
        usd, hourly = paid_usd.sum(axis=0), _SECONDS_PER_HOUR * usual_rate(self._context)
        return Seconds(
            hoped_s=(hoped + paid_usd / usd_per_s(self._context)).T if self._dollars else hoped.T,
            log_latency=np.log(least) - log_variance / 2 + gap,
            log_variance=log_variance,
            paid=np.stack([cells.paid[cells.paid_which] for cells in self._operators]).T,
            share_cost=reduce(np.minimum, [cost for _, cost in composed]) + hourly * usd,
        )

    def paid_once(self, paid: IndexArray, row: int, inputs: int) -> IndexArray:
        """Return `Seconds.paid` once a row has met so many inputs, shape (C, O)."""
        # Whose run of the operator is also that of the row.
        shared = [cells.paid_which == cells.paid_which[row] for cells in self._operators]
        return np.asarray(np.maximum(paid, np.stack(shared).T * inputs))

    def consider(self, work: Work, configuration: Configuration) -> None:
        """Compose also for the placements that are best for a configuration's average input."""
        spots = self._all
        if self._callers is not None:
            spots = spots.where(self._callers, self._callers.called(configuration))
        full = predict(self._context, spots, mean_work(work), spots.full_steps)
        best = [int(np.argmin(full.latency_s))]
        meets = np.flatnonzero(full.latency_s <= self._context.slo.latency_s)
        if len(meets):
            price = spots.full_steps[meets] @ prices(self._context)
            best.append(int(meets[np.argmin(price)]))
        for placement in best:
            self._look_at(spots, placement)

    def _gap(self) -> float:
        """Return the mean of the gaps weighted by inputs, drawn towards 0 while there are few."""
        if not self._gaps:
            return 0.0
        gaps = np.array(list(self._gaps.values()))
        return float((gaps[:, 0] * gaps[:, 1]).sum() / (gaps[:, 1].sum() + 2.0))

    def _look_at(self, spots: Placements, placement: int) -> None:
        """Compose candidates for a placement too, no longer for the one looked at first."""
        tiers = spots.tiers[placement]
        slices = spots.full_steps[placement] * spots.widths[placement]
        if (key := tuple(tiers.tolist())) in self._composers:
            return
        which, moved = [cells.which for cells in self._operators], self._moved(tiers)
        self._composers[key] = CellComposer(self._context, which, tiers, slices, moved)
        if len(self._composers) > _MOST_PLACEMENTS:
            del self._composers[next(iter(self._composers))]

    def _moved(self, tiers: TierArray) -> dict[int, TierArray]:
        """Return where operators that may call are under the settings of each of their cells.

        That is where the placement has them if they may be there; otherwise a remote tier that
        has what they call, or a machine where the placement has others.
        """
        if self._callers is None:
            return {}
        beside = tiers.tolist()
        moved = {}
        for o, by_cells in self._called.items():
            at = {}
            for called in set(by_cells):
                allowed = self._callers.tiers[o][called]
                at[called] = next((t for t in (beside[o], *beside) if t in allowed), allowed[0])
            moved[o] = np.array([at[called] for called in by_cells], dtype=np.int64)
        return moved

    def _called_by_cells(self, callers: Callers) -> dict[int, list[frozenset[str]]]:
        return {
            o: called_by_cells(operator, self._operators[o].own)
            for o, operator in enumerate(callers.operators)
            if operator.all_calls
        }

    def _dollars_of(self, o: int) -> OperatorDollars:
        cells, endpoints = self._operators[o], self._context.infrastructure.endpoints
        process = KnobProcess(cells.cells, cells.tables, dollars_kernel(cells.chosen_own))
        return OperatorDollars(endpoints, self._called[o], process)


def usd_per_s(context: PlanningContext) -> float:
    """Return US dollars per second of the dearest tier, of 1 an hour if all are free."""
    tiers = context.infrastructure.tiers
    price = max((tier.price_usd_per_hour for tier in tiers), default=0.0) or 1.0
    return price / _SECONDS_PER_HOUR
