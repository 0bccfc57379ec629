"""What a second of each type of instance is worth, worked out of what requests took lately.

| symbol | meaning | shape |
| --- | --- | --- |
| B, G | rows of alike requests (kind, size in quarters of an octave); groups of alike types | |
| q | share of each row among the requests of late | (B,) |
| T | seconds that a request of each row had left when it came, their median | (B,) |
| L | seconds of each row on each group, as the policy is told them; infinite beyond T | (B, G) |
| N | places of each group | (G,) |

Types that take the largest request alike long are one group, the fastest is the base type. A
group's coefficient is that of Kairos (definition 1), its price the dual of the throughput bound
over q, L and N. Rows that no group serves in time are left out: they say nothing of what time is
worth.

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
from circinus.scheduler.dispatch.baselines import heterogeneity
from circinus.scheduler.dispatch.policy import FloatArray, IntArray
from circinus.scheduler.pool.throughput_bounds import throughput_bound

_ALIKE = 1.15  # types within this ratio of the fastest of a group belong to it: noise is no type
_LOOK_S = 1.0
_CAME, _FEW = 500, 20  # requests that worths are worked out of, at most and at least
_STEPS = 4  # rows per octave of sizes
_LEAST_S = 1e-6
_SAME = 0.1  # share and relative seconds that move less do not change what time is worth


@dataclass(frozen=True, slots=True, kw_only=True)
class Worth:
    """Of a type of instance; see `scheduler.dispatch.policy.Fleet`."""

    kind: int = 0
    coefficient: float = 1.0
    price: float = 1.0


ALIKE = Worth()
"""Of a type of which nothing is known beside others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TypesSeen:
    """What came and what it takes: all that worths depend on."""

    groups: tuple[tuple[str, ...], ...]  # names of alike types, the fastest first
    rows: tuple[tuple[str, int], ...]  # kind and size of requests
    share: FloatArray  # (B,), q
    latency_s: FloatArray  # (B, G), L, infinite where it would be late
    largest_s: FloatArray  # (G,), of the largest request
    counts: IntArray  # (G,), N

    def is_like(self, other: TypesSeen) -> bool:
        """Return whether worths are the same, but for noise."""
        if (self.groups, self.rows) != (other.groups, other.rows):
            return False
        return (
            bool((self.counts == other.counts).all())
            and np.allclose(self.share, other.share, rtol=0, atol=_SAME)
            and np.allclose(self.latency_s, other.latency_s, rtol=_SAME, atol=0)
        )


@dataclass(slots=True, eq=False)
class LearntWorths:
    """Worths of the types of one tier. Not safe to share between threads."""

    latencies: TierLatencies
    _came: deque[tuple[Request, float]] = field(default_factory=lambda: deque(maxlen=_CAME))
    _look_at: float = -inf
    _seen: TypesSeen | None = None  # what the worths were worked out of
    _worths: Mapping[str, Worth] = field(default_factory=dict)

    def note(self, request: Request, time_left_s: float) -> None:
        """Note a request that came, and the seconds until its deadline."""
        self._came.append((request, time_left_s))

    def is_due(self, now: float) -> bool:
        """Return whether to look again: true once, then not for a second."""
        if now < self._look_at or len(self._came) < _FEW:
            return False
        self._look_at = now + _LOOK_S
        return True

    def look(self, places: Mapping[str, int]) -> bool:
        """Look at what came, with so many places of each type; give whether worths changed."""
        if len(places) < 2:
            changed = bool(self._worths)
            self._seen, self._worths = None, {}
            return changed
        seen = seen_of(self._came, places, self.latencies)
        if seen is None or (self._seen is not None and seen.is_like(self._seen)):
            return False
        self._seen, self._worths = seen, worths(seen)
        return True

    def of(self, name: str) -> Worth | None:
        """Return what a type is worth; None before that was learnt."""
        return self._worths.get(name)


def seen_of(
    came: Iterable[tuple[Request, float]],  # with the seconds that each had left
    places: Mapping[str, int],  # of each type, by name
    latencies: TierLatencies,
) -> TypesSeen | None:
    """Return what came lately; None while nothing came, or nothing is known of a type."""
    known = list(came)
    kinds = {request[0] for request, _ in known}
    if not kinds or not all(latencies.knows(kinds, name) for name in places):
        return None
    rows, sizes, left_s, share = _rows(known)
    requests = [(kind, size) for (kind, _), size in zip(rows, sizes, strict=True)]
    names = list(places)
    seconds = np.maximum(latencies.predicted(requests, names), _LEAST_S)  # (B, types)
    largest = seconds[int(seconds.min(axis=1).argmax())]
    groups = _groups(dict(zip(names, largest.tolist(), strict=True)))
    member = [[names.index(name) for name in group] for group in groups]
    grouped = np.column_stack([seconds[:, of].mean(axis=1) for of in member])
    return TypesSeen(
        groups=groups,
        rows=tuple(rows),
        share=share,
        latency_s=np.where(grouped <= left_s[:, None], grouped, inf),
        largest_s=np.array([largest[of].mean() for of in member]),
        counts=np.array([sum(places[name] for name in group) for group in groups]),
    )


def worths(seen: TypesSeen) -> dict[str, Worth]:
    """Return what a second of each type is worth, by name."""
    coefficient, price = heterogeneity(seen.largest_s), _prices(seen)
    return {
        name: Worth(kind=g, coefficient=float(coefficient[g]), price=float(price[g]))
        for g, group in enumerate(seen.groups)
        for name in group
    }


def _rows(
    came: Sequence[tuple[Request, float]],
) -> tuple[list[tuple[str, int]], list[float], FloatArray, FloatArray]:
    """Return rows of alike requests with their mean sizes, seconds left and shares."""

    def row(each: tuple[Request, float]) -> tuple[str, int]:
        (kind, size), _ = each
        return kind, round(_STEPS * log2(size))

    rows, sizes, left_s, counts = [], [], [], []
    for key, group in groupby(sorted(came, key=row), key=row):
        of = list(group)
        rows.append(key)
        sizes.append(sum(size for (_, size), _ in of) / len(of))
        left_s.append(median(left for _, left in of))
        counts.append(len(of))
    return rows, sizes, np.array(left_s), np.array(counts) / len(came)


def _groups(largest_s: Mapping[str, float]) -> tuple[tuple[str, ...], ...]:
    """Return the names of types that are alike, the fastest first."""
    groups: list[list[str]] = []
    for name in sorted(largest_s, key=lambda name: (largest_s[name], name)):
        if groups and largest_s[name] <= _ALIKE * largest_s[groups[-1][0]]:
            groups[-1].append(name)
        else:
            groups.append([name])
    return tuple(map(tuple, groups))


def _prices(seen: TypesSeen) -> FloatArray:  # (G,)
    able = np.isfinite(seen.latency_s).any(axis=1)
    if len(seen.groups) == 1 or not able.any():
        return np.ones(len(seen.groups))
    share, latency_s = seen.share[able], seen.latency_s[able]
    latest = float(latency_s[np.isfinite(latency_s)].max())
    return throughput_bound(share / share.sum(), latency_s, seen.counts, latest).price
