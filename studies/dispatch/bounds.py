"""How much do the pools of the highest bounds serve, and under which dispatch policy?

Pools within a budget are ranked by Kairos' closed form (5.2), and the allowable rate of each is
measured under every policy (figures 1, 3, 13, 14). The best pool of the base type alone is beside
them, its rate scaled to the whole budget, as the paper does (8.1). Other budgets, QoS, mixes and
sampled service times are figures 8, 15 and 16.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Annotated

import numpy as np
from matplotlib.figure import Figure

from circinus.pipelines import checks
from circinus.scheduler.dispatch.policy import DISPATCH_POLICIES
from circinus.scheduler.pool.kairos_bound import kairos_bounds, kairos_figures, one_shot
from circinus.scheduler.pool.search import MOST_OF_TYPE, Pool
from circinus.scheduler.simulation.draws import LoadDraws, draw
from circinus.scheduler.simulation.loads import Load, load_of
from circinus.scheduler.simulation.measurements import LatencyTable
from circinus.studies.dispatch.pool_change import measured
from circinus.studies.dispatch.study import SEARCH_SEED
from circinus.studies.report.charts import panels
from circinus.studies.report.tables import grouped, of_column, summarised, written

_CENT = 1e-9  # USD: sums of prices are not exact
_RANKED = 20_000  # requests that bounds are computed from


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundRow:
    """A line of `bounds.csv`: a pool under a policy."""

    model: str  # name of the model
    mix: str  # of batch sizes
    policy: str  # that dispatches
    rank: int  # by the bound, from 1; 0: the best pool of the base type alone
    pool: str  # counts of each type, joined by spaces
    chosen: bool  # whether Kairos' choice without a trial is this pool
    bound_rps: float  # by the closed form
    seed: int  # of all draws
    rate_rps: float  # the allowable rate
    over_base: float  # over that of the base type alone, scaled to the budget


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundStudy:
    """What is measured."""

    table: LatencyTable  # latencies of the model
    qos_s: float  # requests should be answered within, `> 0`
    prices: tuple[float, ...]  # of the table's types, the base type first, USD per hour
    budget_usd_per_hour: float = 2.5
    top: int = 20  # pools, `>= 1`
    policies: tuple[str, ...] = ("kairos",)
    load: Load = field(default_factory=load_of)
    seeds: int = 3  # how many, `>= 1`
    first_seed: int = 0
    requests: int = 20_000  # of a measurement, `>= 1000`
    sampled: bool = False  # whether service times are drawn around their means

    def __post_init__(self) -> None:
        checks.positive("qos_s", self.qos_s)
        checks.at_least("top", self.top, 1)
        checks.at_least("seeds", self.seeds, 1)
        checks.at_least("requests", self.requests, 1000)
        checks.unique("policies", self.policies)
        for name in self.policies:
            checks.among("policies", name, DISPATCH_POLICIES)
        base = self.table.kinds[0]
        checks.positive(f"price of {base}", self.prices[0])
        for kind, price in zip(self.table.kinds, self.prices, strict=True):
            checks.non_negative(f"price of {kind}", price)
        checks.positive("budget", self.budget_usd_per_hour)
        rule = f"must pay an instance of {base}, which costs {self.prices[0]:g} USD/h"
        checks.require(self.base[0] > 0, "budget", rule, self.budget_usd_per_hour)

    @property
    def base(self) -> Pool:
        """The most instances of the base type that the budget pays."""
        count = int((self.budget_usd_per_hour + _CENT) / self.prices[0])
        return (count, *(0 for _ in self.prices[1:]))

    def draws(self, seed: int, requests: int) -> LoadDraws:
        """Return the requests of a seed."""
        return draw(self.table, self.qos_s, self.load, requests, seed, sampled=self.sampled)


def run(study: BoundStudy, out: Path) -> list[BoundRow]:
    """Return all rows, written to `out/bounds.csv` one by one."""
    return written(results(study), BoundRow, out / "bounds.csv")


def results(study: BoundStudy) -> Iterator[BoundRow]:
    """Yield the rows of a study as they are measured."""
    budget = study.budget_usd_per_hour
    pools = np.array([pool for pool in _affordable(study.prices, budget) if any(pool)])
    ranked = study.draws(SEARCH_SEED, _RANKED)
    figures = kairos_figures(ranked.share, ranked.table.mean_s, ranked.qos_s)
    bounds = kairos_bounds(figures, pools)
    chosen = one_shot(pools, bounds).pool
    order = np.argsort(-bounds, kind="stable")[: study.top]
    offers = [(study.base, float(kairos_bounds(figures, np.array([study.base]))[0]))]
    offers += [(tuple(pools[i].tolist()), float(bounds[i])) for i in order.tolist()]
    scale = budget / (study.base[0] * study.prices[0])
    for seed in range(study.first_seed, study.first_seed + study.seeds):
        draws = study.draws(seed, study.requests)
        for policy in study.policies:
            measure, base_rps = measured(draws, policy), 0.0
            for rank, (pool, bound_rps) in enumerate(offers):
                rate_rps = measure(pool).value
                if rank == 0:
                    base_rps = scale * rate_rps
                yield BoundRow(
                    model=study.table.model,
                    mix=study.load.name,
                    policy=policy,
                    rank=rank,
                    pool=" ".join(map(str, pool)),
                    chosen=pool == chosen,
                    bound_rps=bound_rps,
                    seed=seed,
                    rate_rps=rate_rps,
                    over_base=rate_rps / base_rps if base_rps else np.inf,
                )


def _affordable(prices: Sequence[float], budget: float) -> Iterator[Pool]:
    """Yield every pool that a budget pays: a budget of ten buys 80,000 of a box of two million."""
    if not prices:
        yield ()
        return
    most = MOST_OF_TYPE if not prices[0] else int((budget + _CENT) / prices[0])
    for count in range(most + 1):
        for others in _affordable(prices[1:], budget - count * prices[0]):
            yield (count, *others)


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundCell:
    """A pool under a policy: means over seeds."""

    policy: str
    rank: int
    pool: str
    chosen: bool
    bound_rps: float
    rate_rps: Annotated[float, of_column(fmean, "rate_rps")]
    over_base: Annotated[float, of_column(fmean, "over_base")]


def summary(rows: Sequence[BoundRow]) -> list[BoundCell]:
    """Return a cell for each policy and pool, in their order."""
    return summarised(rows, BoundCell, "policy", "rank", "pool", "chosen", "bound_rps")


def picture(rows: Sequence[BoundRow]) -> Figure:
    """Draw rates by rank of the bound, a line for each policy; the base type alone is dashed."""
    figure, axes = panels(1, width=7.0, height=3.6)
    place = axes[0][0]
    by_policy = grouped(summary(rows), "policy")
    for (policy,), cells in by_policy.items():
        ranked = [cell for cell in cells if cell.rank]
        place.plot([c.rank for c in ranked], [c.rate_rps for c in ranked], "o-", label=policy)
        star = [cell for cell in ranked if cell.chosen]
        place.plot([c.rank for c in star], [c.rate_rps for c in star], "k*", markersize=12)
    (first,), cells = next(iter(by_policy.items()))
    ranked = [cell for cell in cells if cell.rank]
    place.plot([c.rank for c in ranked], [c.bound_rps for c in ranked], "k:", label="bound")
    alone = cells[0].rate_rps / cells[0].over_base if cells[0].over_base else 0.0
    place.axhline(alone, color="grey", linestyle="--", label=f"base type alone, scaled: {first}")
    place.set(xlabel="rank of the pool by its bound", ylabel="requests/s in time", ylim=(0, None))
    place.set_title(f"{rows[0].model}, sizes of {rows[0].mix}; star: chosen without a trial")
    return figure
