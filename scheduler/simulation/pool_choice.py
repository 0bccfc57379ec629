"""Which pool to rent: the cheapest for a rate, or the largest rate for a budget, by simulation.

Nothing is rented to find out. The dispatcher in use serves drawn requests on each pool in turn,
in the order in which pools may be best: cheapest first for a rate, highest bound first for a
budget. The bound is the linear program of `scheduler.pool.throughput_bound`, which no dispatcher
exceeds, so what it rules out needs no run (Kairos 5.2, algorithm 1, prunes by equation 15, which
is no bound). First runs are short; what they find is judged on draws that they have not seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import mean

import numpy as np

from circinus.pipelines import checks
from circinus.scheduler.dispatch.kernel import CompiledPolicy
from circinus.scheduler.dispatch.policy import BoolArray, FloatArray
from circinus.scheduler.pool.pools import Pool, PoolSpace, contained
from circinus.scheduler.pool.throughput_bounds import throughput_bounds
from circinus.scheduler.simulation.draws import IN_TIME, LoadDraws
from circinus.scheduler.simulation.pool_search import SimulatedRates

_COARSE, _FINE = 0.02, 0.002  # relative tolerances of rates
_KEEP = 0.9  # short runs are noisy: only what is clearly worse than the best needs no look
_FINALISTS = 5
_FRONT = 12  # pools of a front, at most
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolFigures:
    """What a pool costs and serves."""

    pool: Pool
    usd_per_hour: float
    bound_rps: float  # no dispatcher serves more in time in the long run
    rate_rps: float  # largest rate with enough in time, mean over draws
    least_rps: float  # the least over draws
    most_rps: float  # the largest


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolChoice:
    """What was chosen, and what else there is."""

    chosen: PoolFigures | None  # None: no pool does what was asked for
    why: str  # in a sentence
    front: tuple[PoolFigures, ...]  # pools that serve more than all cheaper ones, cheapest first
    pools: int  # that there were to choose from
    simulated: int  # of which so many were


@dataclass(frozen=True, kw_only=True)
class PoolChooser:
    """Chooses for one kind of requests, dispatcher and list of prices."""

    space: PoolSpace
    policy: CompiledPolicy
    coarse: LoadDraws  # few requests, to find candidates on
    fine: Sequence[LoadDraws]  # of other seeds, to judge them on; at least one

    def __post_init__(self) -> None:
        checks.require(len(self.fine) > 0, "draws", "must not be empty", len(self.fine))
        kinds = self.coarse.table.kinds
        rule = f"must be the types that were measured: {', '.join(kinds)}"
        checks.require(self.space.types == kinds, "types", rule, self.space.types)

    @cached_property
    def bounds(self) -> FloatArray:  # (P,)
        """The bound on the rate of each pool, per second."""
        of = self.coarse
        latency_s, pools = of.table.mean_s, self.space.pools
        return throughput_bounds(of.share, latency_s, pools, of.qos_s, in_time=IN_TIME)

    def largest_for(self, budget_usd_per_hour: float) -> PoolChoice:
        """Give the pool with the largest rate for a budget, among those with the best bounds."""
        affordable = self.space.within(budget_usd_per_hour)
        tried = self._climbed(affordable)
        finalists = sorted(tried, key=lambda pool: -tried[pool])[:_FINALISTS]
        judged = {pool: self._rate(pool, self.fine[0], _FINE) for pool in finalists}
        best = max(judged, key=lambda pool: judged[pool], default=None)
        if best is None or judged[best] <= 0:
            return self._none(affordable, list(tried), f"{budget_usd_per_hour:g} USD/h")
        chosen = self.figures(best)
        why = (
            f"the largest rate among {int(affordable.sum())} pools for {budget_usd_per_hour:g} "
            f"USD/h: {chosen.rate_rps:.4g}/s ({chosen.least_rps:.4g} to {chosen.most_rps:.4g} "
            f"over {len(self.fine)} draws), where no dispatcher could serve more than "
            f"{chosen.bound_rps:.4g}/s"
        )
        return self._choice(chosen, why, affordable, len(tried))

    def cheapest_for(self, rate_rps: float) -> PoolChoice:
        """Give the cheapest pool that serves a rate in time on every draw."""
        checks.positive("rate", rate_rps)
        able = self.bounds >= rate_rps * (1 - _ROUNDING)
        failed: list[Pool] = []
        for pool in self._cheapest_first(able):
            if self._serves(pool, self.coarse, rate_rps) and all(
                self._serves(pool, draws, rate_rps) for draws in self.fine
            ):
                chosen = self.figures(pool)
                cheaper = self.space.costs < chosen.usd_per_hour - _ROUNDING
                why = (
                    f"the cheapest that serves {rate_rps:g}/s in time on {len(self.fine)} of "
                    f"{len(self.fine)} draws: of {int(cheaper.sum())} cheaper pools "
                    f"{int((cheaper & ~able).sum())} cannot by their bound, "
                    f"{len(failed)} did not when simulated"
                )
                within = self.space.within(chosen.usd_per_hour)
                return self._choice(chosen, why, within, len(failed) + 1)
            failed.append(pool)
        everything = np.ones(len(self.space.pools), dtype=np.bool_)
        return self._none(everything, failed, f"at most {self._most()} instances", rate_rps)

    def figures(self, pool: Pool) -> PoolFigures:
        """Give what a pool costs and serves, over the fine draws."""
        rates = [self._rate(pool, draws, _FINE) for draws in self.fine]
        return self._told(pool, rates)

    def front(self, among: BoolArray) -> tuple[PoolFigures, ...]:
        """Give pools that serve more than cheaper ones, a few over the whole range of prices.

        They are the best by their bounds, simulated on the coarse draws; (P,) says among which.
        """
        rising = self._rising(among)
        spread = np.unique(np.linspace(0, len(rising) - 1, _FRONT).round().astype(int))
        found: list[PoolFigures] = []
        for pool in (rising[place] for place in spread if len(rising)):
            told = self._told(pool, [self._rate(pool, self.coarse, _COARSE)])
            if told.rate_rps > max((each.rate_rps for each in found), default=0.0):
                found.append(told)
        return tuple(found)

    def _climbed(self, among: BoolArray) -> dict[Pool, float]:
        """Give the coarse rates of the pools that may be best, highest bound first.

        A pool within another is left out (Kairos, algorithm 1), but not where the dispatcher
        sends requests to instances that do not serve them in time: an instance less may help.
        """
        bounds = np.where(among, self.bounds, -np.inf)
        left = among & (self.bounds > 0)
        found: dict[Pool, float] = {}
        for place in np.argsort(-bounds, kind="stable"):
            if bounds[place] < _KEEP * max(found.values(), default=0.0):
                break
            if left[place]:
                pool = self._at(place)
                found[pool] = self._rate(pool, self.coarse, _COARSE)
                left[place] = False
                if self.policy.plans_ahead or self.policy.rejects:
                    left &= ~contained(self.space.pools, pool)
        return found

    def _cheapest_first(self, among: BoolArray) -> Iterator[Pool]:
        # Of pools of one price those with the highest bound are the likeliest to do.
        order = np.lexsort((-self.bounds, self.space.costs))
        return (self._at(place) for place in order if among[place])

    def _rising(self, among: BoolArray) -> list[Pool]:
        """Give the pools whose bound is above that of all cheaper ones, cheapest first."""
        found, highest = [], 0.0
        for pool, bound in (
            (pool, self.bounds[self.space.place(pool)]) for pool in self._cheapest_first(among)
        ):
            if bound > highest * (1 + _ROUNDING):
                found.append(pool)
                highest = float(bound)
        return found

    def _serves(self, pool: Pool, draws: LoadDraws, rate_rps: float) -> bool:
        return self._on(draws).in_time(pool, rate_rps) >= IN_TIME

    def _rate(self, pool: Pool, draws: LoadDraws, tolerance: float) -> float:
        return self._on(draws, tolerance).rate(pool)

    def _on(self, draws: LoadDraws, tolerance: float = _FINE) -> SimulatedRates:
        return SimulatedRates(policy=self.policy, draws=draws, tolerance=tolerance)

    def _told(self, pool: Pool, rates: Sequence[float]) -> PoolFigures:
        return PoolFigures(
            pool=pool,
            usd_per_hour=self.space.cost(pool),
            bound_rps=float(self.bounds[self.space.place(pool)]),
            rate_rps=mean(rates),
            least_rps=min(rates),
            most_rps=max(rates),
        )

    def _choice(
        self, chosen: PoolFigures | None, why: str, among: BoolArray, simulated: int
    ) -> PoolChoice:
        return PoolChoice(
            chosen=chosen,
            why=why,
            front=self.front(among),
            pools=len(self.space.pools),
            simulated=simulated,
        )

    def _none(
        self, among: BoolArray, tried: Sequence[Pool], within: str, rate_rps: float = 0.0
    ) -> PoolChoice:
        highest = float(self.bounds[among].max(initial=0.0))
        if highest <= 0:
            slowest = float(self.coarse.table.mean_s[self.coarse.rows].min(axis=1).max())
            why = (
                f"no type serves {IN_TIME:.0%} of the requests within {self.coarse.qos_s:g} s: "
                f"the largest takes {slowest:.3g} s on the fastest"
            )
        elif highest < rate_rps:
            why = f"{within} serve at most {highest:.4g}/s in time, whatever dispatches them"
        else:
            why = f"none of {len(tried)} pools of {within} that might serves enough in time"
        return self._choice(None, why, among, len(tried))

    def _most(self) -> str:
        return " + ".join(
            f"{n} {kind}" for kind, n in zip(self.space.types, self.space.most, strict=True)
        )

    def _at(self, place: int) -> Pool:
        return tuple(self.space.pools[place].tolist())
