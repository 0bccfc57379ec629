"""The dual price of a second on each type of instance, worked out of the latest requests.

| symbol | meaning | shape |
| --- | --- | --- |
| B, G | rows of alike requests (kind, size in quarters of an octave); groups of alike types | |
| q | share of each row among the requests of late | (B,) |
| T | seconds that a request of each row had left on arrival, their median | (B,) |
| L | seconds of each row on each group, as the policy gets them; infinite beyond T | (B, G) |
| N | places of each group | (G,) |

Types that take the largest request alike long are one group, the fastest is the base type. A
group's coefficient is that of Kairos (definition 1), its price the dual of the throughput bound
over q, L and N. Rows that no group serves in time are left out: they do not bear on the price of
time.

One rule: working it out takes milliseconds, so it is done at most once a second, and only if what
it depends on has changed by more than noise.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from math import inf, log2
from statistics import median

import numpy as np

from circinus.deploy.runtime.learning import Request, TierLatencies
from circinus.scheduler.dispatch.policy import FloatArray, IntArray, heterogeneity
from circinus.scheduler.pool.throughput_bounds import throughput_bound

_ALIKE = 1.15  # types within this ratio of the fastest of a group belong to it: noise is no type
_LOOK_S = 1.0
_MOST, _FEW = 500, 20  # requests that prices are worked out of, at most and at least
_STEPS = 4  # rows per octave of sizes
_LEAST_S = 1e-6
_SAME = 0.1  # share and relative seconds that move less do not change the price of time


@dataclass(frozen=True, slots=True, kw_only=True)
class DualPrice:
    """Of a second on a type of instance; see `scheduler.dispatch.policy.Fleet`."""

    kind: int = 0
    coefficient: float = 1.0
    price: float = 1.0


ALIKE = DualPrice()
"""Of a type of which nothing is known beside others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceBasis:
    """The latest requests and their seconds: all that prices depend on."""

    groups: tuple[tuple[str, ...], ...]  # names of alike types, the fastest first
    rows: tuple[tuple[str, int], ...]  # kind and size of requests
    share: FloatArray  # (B,), q
    latency_s: FloatArray  # (B, G), L, infinite where it would be late
    largest_s: FloatArray  # (G,), of the largest request
    counts: IntArray  # (G,), N

    def is_like(self, other: PriceBasis) -> bool:
        """Return whether prices are the same, but for noise."""
        if (self.groups, self.rows) != (other.groups, other.rows):
            return False
        return (
            bool((self.counts == other.counts).all())
            and np.allclose(self.share, other.share, rtol=0, atol=_SAME)
            and np.allclose(self.latency_s, other.latency_s, rtol=_SAME, atol=0)
        )


@dataclass(slots=True, eq=False)
class LearntPrices:
    """Dual prices of the types of one tier. Not safe to share between threads."""

    latencies: TierLatencies
    _requests: deque[tuple[Request, float]] = field(default_factory=lambda: deque(maxlen=_MOST))
    _look_at: float = -inf
    _basis: PriceBasis | None = None  # of the prices
    _prices: Mapping[str, DualPrice] = field(default_factory=dict)

    def note(self, request: Request, time_left_s: float) -> None:
        """Record an arrival, and the seconds until its deadline."""
        self._requests.append((request, time_left_s))

    def is_due(self, now: float) -> bool:
        """Return whether to look again: true once, then not for a second."""
        if now < self._look_at or len(self._requests) < _FEW:
            return False
        self._look_at = now + _LOOK_S
        return True

    def update(self, places: Mapping[str, int]) -> bool:
        """Work prices out for so many places of each type; return whether they changed."""
        if len(places) < 2:
            changed = bool(self._prices)
            self._basis, self._prices = None, {}
            return changed
        basis = basis_of(self._requests, places, self.latencies)
        if basis is None or (self._basis is not None and basis.is_like(self._basis)):
            return False
        self._basis, self._prices = basis, dual_prices(basis)
        return True

    def of(self, name: str) -> DualPrice | None:
        """Return the price of a type; None before it was learnt."""
        return self._prices.get(name)


def basis_of(
    arrived: Iterable[tuple[Request, float]],  # with the seconds that each had left
    places: Mapping[str, int],  # of each type, by name
    latencies: TierLatencies,
) -> PriceBasis | None:
    """Return the basis of prices; None without requests, or if a type never answered."""
    known = list(arrived)
    kinds = {request[0] for request, _ in known}
    if not kinds or not all(latencies.knows(kinds, name) for name in places):
        return None
    rows, sizes, left_s, share = _rows(known)
    requests = [(kind, size) for (kind, _), size in zip(rows, sizes, strict=True)]
    names = list(places)
    seconds = np.maximum(latencies.predicted(requests, names), _LEAST_S)  # (B, types)
    # deviates: coefficient-learnt
    largest = seconds[int(seconds.min(axis=1).argmax())]
    groups = _groups(dict(zip(names, largest.tolist(), strict=True)))
    member = [[names.index(name) for name in group] for group in groups]
    grouped = np.column_stack([seconds[:, of].mean(axis=1) for of in member])
    return PriceBasis(
        groups=groups,
        rows=tuple(rows),
        share=share,
        latency_s=np.where(grouped <= left_s[:, None], grouped, inf),
        largest_s=np.array([largest[of].mean() for of in member]),
        counts=np.array([sum(places[name] for name in group) for group in groups]),
    )


def dual_prices(basis: PriceBasis) -> dict[str, DualPrice]:
    """Return the price of a second of each type, by name."""
    coefficient, price = heterogeneity(basis.largest_s), _prices(basis)
    return {
        name: DualPrice(kind=g, coefficient=float(coefficient[g]), price=float(price[g]))
        for g, group in enumerate(basis.groups)
        for name in group
    }


def _rows(
    arrived: Sequence[tuple[Request, float]],
) -> tuple[list[tuple[str, int]], list[float], FloatArray, FloatArray]:
    """Return rows of alike requests with their mean sizes, seconds left and shares."""

    def row(each: tuple[Request, float]) -> tuple[str, int]:
        (kind, size), _ = each
        return kind, round(_STEPS * log2(size))

    rows, sizes, left_s, counts = [], [], [], []
    for key, group in groupby(sorted(arrived, key=row), key=row):
        of = list(group)
        rows.append(key)
        sizes.append(sum(size for (_, size), _ in of) / len(of))
        left_s.append(median(left for _, left in of))
        counts.append(len(of))
    return rows, sizes, np.array(left_s), np.array(counts) / len(arrived)


def _groups(largest_s: Mapping[str, float]) -> tuple[tuple[str, ...], ...]:
    """Return the names of types that are alike, the fastest first."""
    groups: list[list[str]] = []
    for name in sorted(largest_s, key=lambda name: (largest_s[name], name)):
        if groups and largest_s[name] <= _ALIKE * largest_s[groups[-1][0]]:
            groups[-1].append(name)
        else:
            groups.append([name])
    return tuple(map(tuple, groups))


def _prices(basis: PriceBasis) -> FloatArray:  # (G,)
    able = np.isfinite(basis.latency_s).any(axis=1)
    if len(basis.groups) == 1 or not able.any():
        return np.ones(len(basis.groups))
    share, latency_s = basis.share[able], basis.latency_s[able]
    latest = float(latency_s[np.isfinite(latency_s)].max())
    return throughput_bound(share / share.sum(), latency_s, basis.counts, latest).price
