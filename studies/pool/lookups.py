"""Tables of what every pool of a space does, measured or simulated.

Files are JSON as of Ribbon's authors: `{"n1, n2, n3": [price, percent in time], ...}`. Prices
there are rounded to cents and not read: exact ones come from the price file
(`instance,usd_per_hour`).

There are two published tables, of one load each. `SimulatedLoad` makes others: first come, first
served, the types in order.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf
from pathlib import Path
from typing import NamedTuple

import numpy as np

from circinus.pipelines import checks
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.io.files import read_file
from circinus.pipelines.io.strict import read_json
from circinus.pipelines.model.profile import BoolArray, IntArray
from circinus.scheduler.dispatch.baselines import FcfsDispatch
from circinus.scheduler.dispatch.policy import Fleet
from circinus.scheduler.pool.ribbon_space import EarlyEnd, MeasuredTypes, most_useful
from circinus.scheduler.pool.search import (
    MOST_POOLS,
    CheapestInTime,
    Pool,
    PoolSpace,
    PoolTrial,
)
from circinus.scheduler.simulation.draws import IN_TIME
from circinus.scheduler.simulation.engine import Scenario, SimulationRun, simulate
from circinus.scheduler.simulation.loads import Load, arrival_times, load_of, ribbon_batches
from circinus.scheduler.simulation.measurements import LatencyTable
from circinus.scheduler.simulation.trying import TrialLoad


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolProfile:
    """Latencies and load of a lookup: simulating pools needs them."""

    table: LatencyTable  # of the types of the space, in order
    load: TrialLoad  # of each trial


class PublishedLookup(NamedTuple):
    """What a published table is of (Ribbon, table 3; sizes, gaps and requests of the artefact)."""

    types: tuple[str, ...]  # in order
    load: TrialLoad


PUBLISHED: Mapping[str, PublishedLookup] = {
    "mtwnd": PublishedLookup(
        ("g4dn.xlarge", "c5.2xlarge", "r5n.large"),
        TrialLoad(mix=ribbon_batches, qos_s=0.021, rate_rps=1e3 / 1.5, requests=20_000),
    ),
    "resnet": PublishedLookup(
        ("c5a.4xlarge", "m5.2xlarge", "t3.2xlarge"),
        TrialLoad(mix=ribbon_batches, qos_s=0.4, rate_rps=1e3 / 18.0, requests=10_000),
    ),
}
"""Published tables by the name of their model."""
PRICE_FILE = "instance_prices.csv"
"""Beside a table, where nobody names another."""

_PREFIX = "ribbon_lookup_"
_EQUAL = 1e-9  # USD/h: prices that differ by less do not


@dataclass(frozen=True, kw_only=True)
class PoolLookup:
    """What every pool of a space does."""

    model: str
    space: PoolSpace
    shares: Mapping[Pool, float]  # of requests in time, of every pool
    in_time: float = IN_TIME  # target share, in (0, 1]
    profile: PoolProfile | None = None  # None: latencies are not known
    # trials that end before all requests arrived, and the part of them that did, in (0, 1]
    early: Mapping[Pool, tuple[PoolTrial, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        checks.share("in_time", self.in_time)
        pools = map(tuple, self.space.pools.tolist())
        missing = [pool for pool in pools if pool not in self.shares]
        checks.require(not missing, self.model, "must have every pool, missing", missing[:3])
        checks.require(bool(self.feasible.any()), self.model, "must have a feasible pool", "none")

    def measure(self, pool: Pool) -> PoolTrial:
        """Try a pool: a `MeasurePool`."""
        return self.early[pool][0] if pool in self.early else PoolTrial(pool, self.shares[pool])

    def paid(self, pool: Pool) -> float:
        """Return the price of a pool, of the part of an hour-long trial that it takes, in USD."""
        return self.space.cost(pool) * (self.early[pool][1] if pool in self.early else 1.0)

    def goal(self, prunes_below: float | None = None) -> CheapestInTime:
        """Return the goal; None: prices alone prune, so the optimum is never thrown away."""
        return CheapestInTime(space=self.space, in_time=self.in_time, prunes_below=prunes_below)

    def profiled(self) -> PoolProfile:
        """Return what is known besides; InvalidInput if nothing is."""
        if self.profile is None:
            rule = "must be told for who simulates pools"
            raise InvalidInput.of(f"latencies of {self.model}", rule, "none")
        return self.profile

    def is_feasible(self, pool: Pool) -> bool:
        """Return whether a pool has enough in time."""
        return bool(self.feasible[self.space.place(pool)])

    def is_optimum(self, pool: Pool) -> bool:
        """Return whether a pool is feasible and none that is costs less; there may be several."""
        cheap = self.space.cost(pool) <= self.space.cost(self.optimum) + _EQUAL
        return cheap and self.is_feasible(pool)

    @cached_property
    def feasible(self) -> BoolArray:  # (P,)
        """Which pools have enough in time."""
        shares = [self.shares[tuple(pool)] for pool in self.space.pools.tolist()]
        return np.array(shares) >= self.in_time

    @cached_property
    def optimum(self) -> Pool:
        """The cheapest feasible pool, the first of equals."""
        return self._cheapest(self.feasible)

    @cached_property
    def homogeneous(self) -> Pool | None:
        """The cheapest feasible pool of one type; None: there is none."""
        alone = self.feasible & ((self.space.pools > 0).sum(axis=1) == 1)
        return self._cheapest(alone) if alone.any() else None

    def _cheapest(self, among: BoolArray) -> Pool:
        return self.space.at(int(np.where(among, self.space.costs, inf).argmin()))

    @property
    def saving(self) -> float | None:
        """The share that the optimum saves of the best homogeneous pool; None: there is none."""
        alone = self.homogeneous
        if alone is None or self.space.cost(alone) == 0:
            return None
        return 1.0 - self.space.cost(self.optimum) / self.space.cost(alone)


# deviates: published-tables
def read_lookup(
    path: Path, types: Sequence[str] | None = None, prices: Path | None = None
) -> PoolLookup:
    """Return a table; None: types published for a model of that name, prices beside it.

    InvalidInput if a file cannot be read, a key is no pool, a price or a pool is missing.
    """
    model = path.stem.removeprefix(_PREFIX)
    if types is None:
        rule = f"must be told unless it is one of {', '.join(PUBLISHED)}"
        checks.require(model in PUBLISHED, f"types of {model}", rule, "none")
        types = PUBLISHED[model].types
    shares = _shares(path, len(types))
    space = PoolSpace(
        types=tuple(types),
        prices=prices_of(types, prices or path.parent / PRICE_FILE),
        most=tuple(max(counts) for counts in zip(*shares, strict=True)),
    )
    return PoolLookup(model=model, space=space, shares=shares)


def prices_of(types: Sequence[str], path: Path) -> tuple[float, ...]:
    """Return USD per hour of types, of a price file; InvalidInput if one is missing."""
    known = _prices(path)
    for kind in types:
        checks.among("types", kind, known)
    return tuple(known[kind] for kind in types)


def _shares(path: Path, kinds: int) -> dict[Pool, float]:
    tree = read_json(read_file(path, "lookup"), "lookup", most=4 * MOST_POOLS)
    if not isinstance(tree, dict) or not tree:
        raise InvalidInput.of("lookup", "must map pools to price and percent in time", path.name)
    return dict(_entry(key, value, kinds) for key, value in tree.items())


def _entry(key: str, value: object, kinds: int) -> tuple[Pool, float]:
    try:
        pool = tuple(int(count) for count in key.split(","))
    except ValueError as error:
        raise InvalidInput.of("lookup", "must have counts as keys", key) from error
    good = len(pool) == kinds and min(pool) >= 0
    checks.require(good, "lookup", f"must have {kinds} counts >= 0 in each key", key)
    rule = f"must give price and percent in time of {key}"
    match value:
        case [int() | float(), int() | float() as percent] if 0 <= percent <= 100:
            # 99 / 100 is the double that 0.99 is; 0.01 * 99 is not
            return pool, percent / 100
        case _:
            raise InvalidInput.of("lookup", rule, value)


def _prices(path: Path) -> dict[str, float]:
    try:
        text = read_file(path, "prices").decode("utf-8")
        rows = csv.DictReader(io.StringIO(text))
        return {row["instance"]: float(row["usd_per_hour"]) for row in rows}
    except (UnicodeDecodeError, KeyError, ValueError, TypeError, csv.Error) as error:
        rule = "must have the columns instance and usd_per_hour, a number"
        raise InvalidInput.of("prices", rule, f"{path.name}: {error}") from error


MOST_OF_A_TYPE = 20
"""Instances that are looked at where their largest count is derived."""


def _ribbon() -> Load:
    return load_of("ribbon")


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedLoad:
    """Requests of one seed, at any rate the same."""

    table: LatencyTable  # of the types of the space, in order
    qos_s: float  # a request should be answered within, `> 0`
    load: Load = field(default_factory=_ribbon)
    requests: int = 5000
    seed: int = 0

    def lookup(
        self, space: PoolSpace, rate_rps: float, ends: EarlyEnd | None = None
    ) -> PoolLookup:
        """Return what every pool does at a rate, trials ending early by a rule; None: none does.

        InvalidInput if no pool has enough in time.
        """
        serve, shares, early = self.served(rate_rps), {}, {}
        for counts in space.pools.tolist():
            run = serve(pool := tuple(counts))
            shares[pool] = run.in_time
            if ends is not None:
                trial, count = ends.trial(pool, run.waiting, run.each_in_time)
                if trial.ended_early:
                    early[pool] = (trial, count / self.requests)
        return PoolLookup(
            model=f"{self.table.model} at {rate_rps:.0f} 1/s",
            space=space,
            shares=shares,
            profile=PoolProfile(table=self.table, load=self._trial(rate_rps)),
            early=early,
        )

    def of_useful(self, prices: Sequence[float]) -> SimulatedLoad:
        """Return the load on the types that are worth a place in a pool (Ribbon, 3.3)."""
        rows = self._rows()
        share = np.bincount(rows, minlength=len(self.table.batches)) / len(rows)
        types = MeasuredTypes(share=share, latency_s=self.table.mean_s, prices=np.array(prices))
        kinds = [self.table.kinds[k] for k in types.useful(self.qos_s)]
        return replace(self, table=self.table.of_kinds(kinds))

    def most(self, rate_rps: float) -> Pool:
        """Return the count of each type, alone, on which more do not improve, at most 20."""
        serve = self.served(rate_rps)
        return most_useful(lambda pool: serve(pool).in_time, len(self.table.kinds), MOST_OF_A_TYPE)

    def served(self, rate_rps: float) -> Callable[[Pool], SimulationRun]:
        """Return what serves the requests at a rate by a pool."""
        gaps, rows = self._rng(1), self._rows()
        arrived_s = arrival_times(self.load.gaps(self.requests, gaps), rate_rps)
        service_s = self.table.mean_s[rows]
        size = self.table.batches[rows].astype(np.float64)

        def serve(pool: Pool) -> SimulationRun:
            kind = np.repeat(np.arange(len(pool)), pool)
            scenario = Scenario(
                arrived_s=arrived_s,
                size=size,
                service_s=service_s,
                predicted_s=service_s,
                qos_s=self.qos_s,
                fleet=Fleet(kind, np.ones(len(kind)), np.ones(len(kind))),
            )
            return simulate(scenario, FcfsDispatch())

        return serve

    def _rows(self) -> IntArray:  # (N,)
        return self.table.rows(self.load.sizes(self.requests, self._rng(0)))

    def _rng(self, purpose: int) -> np.random.Generator:
        """Return the generator of sizes, 0, or gaps, 1."""
        return np.random.default_rng(np.random.SeedSequence(self.seed).spawn(2)[purpose])

    def _trial(self, rate_rps: float) -> TrialLoad:
        return TrialLoad(
            mix=self.load.sizes, qos_s=self.qos_s, rate_rps=rate_rps, requests=self.requests
        )
