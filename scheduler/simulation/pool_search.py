"""The pool with the highest allowable rate of many, by simulation of the dispatcher in use."""

from __future__ import annotations

from dataclasses import dataclass, field

from circinus.scheduler.dispatch.kernel import CompiledPolicy
from circinus.scheduler.pool.pools import Pool, PoolTrial
from circinus.scheduler.simulation.draws import IN_TIME, LoadDraws, allowable_rate
from circinus.scheduler.simulation.engine import simulate

_OVER = 1.02  # a finite run may exceed the bound a little


@dataclass(slots=True, kw_only=True)
class SimulatedRates:
    """Measures the allowable rate of pools on one set of draws; keeps the highest.

    A pool that is not in time at the highest rate so far ends early: that takes one run.
    """

    policy: CompiledPolicy
    draws: LoadDraws
    tolerance: float = 0.002  # of the rates, relative, `> 0`
    highest_rps: float = field(default=0.0, init=False)

    def __call__(self, pool: Pool) -> PoolTrial:
        """Measure a pool; the value of one that ends early is 0."""
        if self.highest_rps > 0 and self.in_time(pool, self.highest_rps) < IN_TIME:
            return PoolTrial(pool, 0.0, ended_early=True)
        rate = self.rate(pool)
        self.highest_rps = max(rate, self.highest_rps)
        return PoolTrial(pool, rate)

    def rate(self, pool: Pool) -> float:
        """Return the allowable rate of a pool, per second."""
        scenarios = self.draws.scenarios(pool, self.policy.level)
        bound = _OVER * self.draws.bound_rps(pool)
        if not bound > 0:
            return 0.0
        return allowable_rate(self.policy, scenarios, bound, tolerance=self.tolerance)[0]

    def in_time(self, pool: Pool, rate_rps: float) -> float:
        """Return the share in time at a rate; 0 once it is clear that it is below the target."""
        scenario = self.draws.scenarios(pool, self.policy.level)(rate_rps)
        most_late = (1.0 - IN_TIME) * len(scenario.arrived_s) + 1e-6
        return simulate(scenario, self.policy, most_late=most_late).in_time
