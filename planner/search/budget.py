"""What a search may cost, and what it has cost by now."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf, log

from circinus.pipelines.clock import Clock, Waits
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.profile import Evaluator
from circinus.pipelines.model.query import PlanningLimits

_SECONDS_PER_HOUR = 3600.0
_LEAST_REPORT_S = 1.0  # that saying why there is no plan may take after a limit


@dataclass(frozen=True, slots=True)
class Budget:
    """The limits of one query on one infrastructure."""

    limits: PlanningLimits
    price_usd_per_hour: float

    @classmethod
    def of(cls, limits: PlanningLimits, infrastructure: Infrastructure) -> Budget:
        """Return the budget, profiling billed at the price of the reference tier.

        Operator seconds are seconds on its machines: its speed factor is nearest 1 (by ratio), of
        equally near tiers it is the dearest.
        """
        tiers = [
            (abs(log(tier.speed_factor)), -tier.price_usd_per_hour)
            for tier in infrastructure.tiers
            if not tier.remote
        ]
        return cls(limits, -min(tiers)[1])

    @property
    def profiling_s(self) -> float:
        """Operator seconds on machines that both limits on profiling allow beside no calls."""
        return self.left_s(machine_s=0.0, calls_usd=0.0)

    def left_s(self, *, machine_s: float, calls_usd: float) -> float:
        """Return the operator seconds on machines that may still be paid, `>= 0`.

        What was waited for endpoints is none of them: it costs what the calls cost.
        """
        left, usd = self.limits.profiling_s - machine_s, self.limits.profiling_usd
        if usd is not None and self.price_usd_per_hour > 0:
            affordable = (usd - calls_usd) / self.price_usd_per_hour * _SECONDS_PER_HOUR
            left = min(left, affordable - machine_s)
        elif usd is not None and calls_usd > 0 and calls_usd >= usd:
            left = 0.0
        return max(left, 0.0)

    def time_left_s(self, elapsed_s: float) -> float | None:
        """Return wall-clock seconds left, `>= 0`; None when they are not limited."""
        response = self.limits.response_s
        return None if response is None else max(response - elapsed_s, 0.0)

    def own_left_s(self, *, spent_s: float, elapsed_s: float, waited_s: float = 0.0) -> float:
        """Return wall-clock seconds left for other work than operators and waits, `>= 0`.

        Infinite: not limited.
        """
        own = (self.limits.own_s or inf) - (elapsed_s - spent_s - waited_s)
        return max(min(own, (self.limits.response_s or inf) - elapsed_s), 0.0)

    def reached(
        self,
        *,
        spent_s: float,  # operator seconds, those waited for endpoints included
        elapsed_s: float,
        configurations: int,
        calls_s: float = 0.0,  # of `spent_s`, waited for endpoints
        calls_usd: float = 0.0,  # US dollars that calls cost
        waited_s: float = 0.0,  # for limits of endpoints and for workers to start
    ) -> str | None:
        """Return which limit is reached, in words; None: none."""
        machine_s = spent_s - calls_s
        if machine_s >= self.limits.profiling_s or not self.left_s(
            machine_s=machine_s, calls_usd=calls_usd
        ):
            by_time = machine_s >= self.limits.profiling_s
            return f"limit {'profiling_s' if by_time else 'profiling_usd'} reached"
        if elapsed_s >= (self.limits.response_s or inf):
            return "limit response_s reached"
        if elapsed_s - spent_s - waited_s >= (self.limits.own_s or inf):
            return f"{self.limits.own_s:g} s went into other work than operators"
        if configurations >= (self.limits.configurations or inf):
            return "limit configurations reached"
        return None


class Account:
    """What one search has spent of its budget by now."""

    def __init__(
        self, budget: Budget, evaluator: Evaluator, clock: Clock, waits: Waits | None
    ) -> None:
        self.budget, self.evaluator, self._clock = budget, evaluator, clock
        self.waits = Waits(clock) if waits is None else waits
        self._start = clock.now()

    @property
    def elapsed_s(self) -> float:
        """Wall-clock seconds since the search began."""
        return self._clock.now() - self._start

    @property
    def own_s(self) -> float:
        """Of these, seconds that went into other work than running operators."""
        return self.elapsed_s - self.evaluator.spent_s

    @property
    def profiling_left_s(self) -> float:
        """Operator seconds on machines that may still be paid, `>= 0`."""
        paid = self.evaluator
        return self.budget.left_s(machine_s=paid.spent_s - paid.calls_s, calls_usd=paid.calls_usd)

    def reached(self, configurations: int = 0) -> str | None:
        """Return which limit is reached with so many configurations, in words; None: none."""
        paid = self.evaluator
        return self.budget.reached(
            spent_s=paid.spent_s,
            calls_s=paid.calls_s,
            calls_usd=paid.calls_usd,
            waited_s=self.waits.seconds,
            elapsed_s=self.elapsed_s,
            configurations=configurations,
        )

    def deadline(self) -> Callable[[], bool]:
        """Return a function that decides whether the answer is due, from now on."""
        elapsed_s = self.elapsed_s
        left_s = self.budget.own_left_s(
            spent_s=self.evaluator.spent_s, elapsed_s=elapsed_s, waited_s=self.waits.seconds
        )
        end_s = elapsed_s + max(left_s, _LEAST_REPORT_S)
        return lambda: self.elapsed_s > end_s
