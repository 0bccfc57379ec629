"""What happens to a route over time: a recorder that a simulation feeds with its events.

One rule: what is recorded adds up to the totals of the run (`RoutedRun`), request by request and
dollar by dollar. Requests count at their arrival, answers at their completion.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil

import numpy as np

from circinus.pipelines import checks
from circinus.pipelines.model.profile import FloatArray
from circinus.scheduler.routing.regimes import Regime
from circinus.scheduler.routing.traffic import RouteTraffic
from circinus.scheduler.routing.units import DeploymentUnit

_HOUR_S = 3600.0


@dataclass(slots=True)
class SimulatedUnits:
    """Units of one kind: each serves T L requests at once, each in L, so that it takes T."""

    unit: DeploymentUnit
    running: int = 0
    starting: list[float] = field(default_factory=list)  # when each runs
    wanted: int = 0
    waiting: deque[int] = field(default_factory=deque)
    in_hand: dict[int, int] = field(default_factory=dict)  # request -> which event, as they began

    @property
    def per_unit(self) -> int:
        """Return how many requests one has in hand at the most."""
        return max(1, round(self.unit.most_per_s * self.unit.latency_s))

    @property
    def places(self) -> int:
        """Return how many all that run have in hand at the most."""
        return self.running * self.per_unit

    @property
    def service_s(self) -> float:
        """Return how long a request takes once it has a place."""
        return self.per_unit / self.unit.most_per_s


@dataclass(frozen=True, slots=True, kw_only=True)
class RegimeChange:
    """A regime that began."""

    at_s: float
    regime: Regime
    why: str  # empty: who decides has one only


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteSeries:
    """A run over time, in B buckets of equal length, of U units in the route's order."""

    bucket_s: float
    units: tuple[str, ...]
    arrivals: FloatArray  # requests, (B,)
    lost: FloatArray  # those of them that were never served, (B,)
    served: FloatArray  # (U, B)
    late: FloatArray  # of those served, (B,)
    p50_s: FloatArray  # of those served, nan: none, (B,)
    p95_s: FloatArray  # (B,)
    unit_p95_s: FloatArray  # of those that a unit served, (U, B)
    running: FloatArray  # units, mean over a bucket, (U, B)
    busy: FloatArray  # requests in hand, of those that all that run can have; nan: none, (U, B)
    usd: FloatArray  # of what runs or starts, (U, B)
    regimes: Sequence[RegimeChange]  # the first is what the run began with

    def at_s(self) -> FloatArray:
        """Return the middle of each bucket, (B,)."""
        return (np.arange(self.arrivals.size, dtype=np.float64) + 0.5) * self.bucket_s


@dataclass(slots=True, kw_only=True)
class RouteRecorder:
    """Records a run as it goes, and returns its series; made for one run.

    `lasts_s` is up to when the simulation goes on, `late_s` what an answer may take at most.
    """

    units: tuple[str, ...]  # of the route, in its order
    bucket_s: float  # `> 0`
    lasts_s: float  # `> 0`
    late_s: float
    _arrival_times: list[float] = field(default_factory=list)
    _answers: list[tuple[str, float, float]] = field(default_factory=list)  # unit, arrived, served
    # unit -> by bucket: seconds of running units, of requests in hand, of places; dollars
    _lasted: dict[str, list[list[float]]] = field(init=False)
    _regimes: list[RegimeChange] = field(default_factory=list)

    def __post_init__(self) -> None:
        checks.positive("bucket_s", self.bucket_s)
        checks.positive("lasts_s", self.lasts_s)
        nothing = [0.0] * 4
        self._lasted = {name: [[*nothing] for _ in range(self._buckets)] for name in self.units}

    def arrived(self, at_s: float) -> None:
        """Record a request."""
        self._arrival_times.append(at_s)

    def served(self, unit: str, arrived_s: float, at_s: float) -> None:
        """Record an answer."""
        self._answers.append((unit, arrived_s, at_s))

    def lasted(self, kinds: Mapping[str, SimulatedUnits], from_s: float, until_s: float) -> None:
        """Record a span without changes, during which units are paid for."""
        bucket, at_s = int(from_s / self.bucket_s), from_s
        while at_s < until_s:
            bucket += 1  # counts on whatever the rounding, so that this ends
            end_s = min(bucket * self.bucket_s, until_s)
            for name, kind in kinds.items():
                self._add(name, bucket - 1, kind, max(end_s - at_s, 0.0))
            at_s = end_s

    def decided(self, at_s: float, traffic: RouteTraffic) -> None:
        """Record what a router wants."""
        if not self._regimes or self._regimes[-1].regime is not traffic.regime:
            change = RegimeChange(at_s=at_s, regime=traffic.regime, why=traffic.why)
            self._regimes.append(change)

    def series(self) -> RouteSeries:
        """Return the recorded series."""
        arrived_s = np.array(self._arrival_times)
        answers = np.array([(arrived, at) for _, arrived, at in self._answers]).reshape(-1, 2)
        by = np.array([name for name, _, _ in self._answers], dtype=str)
        latency_s, at_s = answers[:, 1] - answers[:, 0], answers[:, 1]
        arrivals = self._counts(arrived_s)
        lasted = np.array([self._lasted[name] for name in self.units])  # (U, B, 4)
        running_s, busy_s, places_s, usd = np.moveaxis(lasted, 2, 0)
        with np.errstate(invalid="ignore"):
            busy = busy_s / places_s
        each = [by == name for name in self.units]
        return RouteSeries(
            bucket_s=self.bucket_s,
            units=self.units,
            arrivals=arrivals,
            lost=arrivals - self._counts(answers[:, 0]),
            served=np.array([self._counts(at_s[of]) for of in each]),
            late=self._counts(at_s[latency_s > self.late_s]),
            p50_s=self._quantiles(at_s, latency_s, 0.5),
            p95_s=self._quantiles(at_s, latency_s, 0.95),
            unit_p95_s=np.array([self._quantiles(at_s[of], latency_s[of], 0.95) for of in each]),
            running=running_s / self.bucket_s,
            busy=busy,
            usd=usd,
            regimes=tuple(self._regimes),
        )

    @property
    def _buckets(self) -> int:
        return ceil(self.lasts_s / self.bucket_s) + 1  # what ends with the last counts

    def _add(self, name: str, bucket: int, kind: SimulatedUnits, lasted_s: float) -> None:
        sums, paid = self._lasted[name][bucket], kind.running + len(kind.starting)
        sums[0] += kind.running * lasted_s
        sums[1] += len(kind.in_hand) * lasted_s
        sums[2] += kind.places * lasted_s
        sums[3] += paid * kind.unit.price_usd_per_hour * lasted_s / _HOUR_S

    def _counts(self, at_s: FloatArray) -> FloatArray:
        numbers = np.bincount(self._places(at_s), minlength=self._buckets)
        return numbers.astype(np.float64)

    def _quantiles(self, at_s: FloatArray, latency_s: FloatArray, share: float) -> FloatArray:
        quantiles = np.full(self._buckets, np.nan)
        bucket = self._places(at_s)
        for b in np.unique(bucket).tolist():
            quantiles[b] = np.quantile(latency_s[bucket == b], share)
        return quantiles

    def _places(self, at_s: FloatArray) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        return (at_s / self.bucket_s).astype(np.int64)
