"""From what a search costs at the ends of an interval to what its limits let it cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from circinus.pipelines.model.endpoints import Usage
from circinus.pipelines.model.profile import USAGE_FIELDS, FloatArray
from circinus.planner.search.bill import Budget, CallsCost, Cost

_USD = Usage._fields.index("usd")
_SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Amounts:
    """What some runs take, before its price."""

    runs: float  # of operators, `>= 0`
    seconds: float  # of operators, `>= 0`
    machine_s: float  # of these, those on machines, `>= 0`
    operators: tuple[str, ...]  # that may have called
    used: FloatArray  # of endpoints, by operator, shape (operators, len(Usage))

    @classmethod
    def of(
        cls,
        *,
        runs: float,
        seconds: float,
        calls_s: float,
        calls: Sequence[CallsCost],
        operators: tuple[str, ...],
    ) -> Amounts:
        """Return what runs took; calls that were cut off count as the most that they may cost."""
        used = np.zeros((len(operators), USAGE_FIELDS))
        for cost in calls:
            told = Usage(*(getattr(cost, name) for name in Usage._fields)).told
            used[operators.index(cost.operator)] += told.plus(Usage(usd=cost.open_usd))
        machine_s = max(seconds - calls_s, 0.0)
        return cls(runs=runs, seconds=seconds, machine_s=machine_s, operators=operators, used=used)

    @property
    def figures(self) -> FloatArray:
        """All of them in a row."""
        return np.concatenate(([self.runs, self.seconds, self.machine_s], self.used.ravel()))

    def having(self, figures: FloatArray) -> Amounts:
        """Return the same with other figures."""
        runs, seconds, machine_s = figures[:3].tolist()
        used = figures[3:].reshape(self.used.shape)
        return replace(self, runs=runs, seconds=seconds, machine_s=machine_s, used=used)

    def usd(self, price_usd_per_hour: float) -> float:
        """Return the dollars of machines and calls."""
        machines = self.machine_s * price_usd_per_hour / _SECONDS_PER_HOUR
        return machines + float(self.used[:, _USD].sum())

    def cost(self, price_usd_per_hour: float) -> Cost:
        """Return what they cost, with a line for each operator that called."""
        by_operator = zip(self.operators, self.used, strict=True)
        calls = [
            CallsCost(operator=operator, **Usage(*row.tolist())._asdict())
            for operator, row in by_operator
            if row.any()
        ]
        calls_s = max(self.seconds - self.machine_s, 0.0)
        return Cost.of(self.runs, self.seconds, price_usd_per_hour, calls_s=calls_s, calls=calls)


def within(wholes: Sequence[Amounts], spent: Amounts, budget: Budget) -> list[Cost]:
    """Return the costs of ever larger amounts, as far as the budget lets each go on from the last.

    The first goes on from what is spent. So none costs less than the one before in any figure, and
    none more than the budget allows, but for what is spent already.
    """
    costs, before, price = [], spent, budget.price_usd_per_hour
    usd = budget.limits.profiling_usd
    for whole in wholes:
        most = before.having(np.maximum(before.figures, whole.figures))
        part = min(
            _part(before.machine_s, most.machine_s, budget.limits.profiling_s),
            _part(before.usd(price), most.usd(price), inf if usd is None else usd),
        )
        if part > 0:  # 0: not even a rounding error more
            before = before.having(before.figures + part * (most.figures - before.figures))
        costs.append(before.cost(price))
    return costs


def _part(low: float, high: float, limit: float) -> float:
    """Return which part of the way from `low` to `high` lies within a limit, in [0, 1]."""
    if high <= limit:
        return 1.0
    return max((limit - low) / (high - low), 0.0) if high > low else 0.0
