"""Learns what requests take where from their answers, for dispatch and for choosing pools.

Sizes of requests come in any unit. A workload has them in classes: an eighth of an octave each, or
wider where they spread over so many octaves that these would be too many.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import exp, sqrt
from typing import Protocol

import numpy as np

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.profile import FloatArray, IntArray
from circinus.scheduler.dispatch.learnt_latency import LatencyLine, LearntLatency

_log = logging.getLogger(__name__)

Learnt = Mapping[str, Mapping[str, Mapping[str, object]]]
"""Tier -> kind of request and instance -> result of `LearntLatency.dump`: JSON values."""

Request = tuple[str, float]
"""Kind and size: larger requests of a kind take longer."""


class LatencyMemory(Protocol):
    """Keeps what was learnt of a plan's latencies. Safe to share between threads.

    Calls may take long: they are made off the event loop. Unavailable if they cannot be answered
    now, which the memory itself logs.
    """

    def recall(self, plan_id: str) -> Learnt:
        """Return the latencies of a plan as they were stored last; empty if none were."""

    def keep(self, plan_id: str, learnt: Learnt) -> None:
        """Store the latencies of a plan in place of those before."""


@dataclass(slots=True, eq=False)
class TierLatencies:
    """Predicts what requests take on a tier's instances; those of one name learn together."""

    tier: str  # for the log
    level: float | None  # quantile to predict; None: the mean
    prior_s: float  # of a request before any was observed
    _known: dict[str, LearntLatency] = field(default_factory=dict)

    @property
    def drifts(self) -> int:
        """Times that latencies had changed for good."""
        return sum(learnt.drifts for learnt in self._known.values())

    def predicted(self, requests: Sequence[Request], names: Sequence[str]) -> FloatArray:  # (m, n)
        """Return the seconds of each request at each instance, by the instances' names."""
        columns: dict[str, list[float]] = {}
        for name in dict.fromkeys(names):
            known = {request: self.predict(request, name) for request in dict.fromkeys(requests)}
            columns[name] = [known[request] for request in requests]
        return np.ascontiguousarray(np.array([columns[name] for name in names]).T)

    def predict(self, request: Request, name: str) -> float:
        """Return the seconds of a request at an instance of a name."""
        kind, size = request
        learnt = self._known.get(_key(kind, name))
        if learnt is None:
            return self.prior_s
        return learnt.predict(size) if self.level is None else learnt.quantile(self.level, size)

    def mean(self, request: Request, name: str) -> float:
        """Return the mean seconds of a request at an instance of a name."""
        kind, size = request
        learnt = self._known.get(_key(kind, name))
        return self.prior_s if learnt is None else learnt.predict(size)

    def spread(self, kind: str, name: str) -> float:
        """Return how the logarithms of seconds deviate there; 0 before two requests."""
        learnt = self._known.get(_key(kind, name))
        return 0.0 if learnt is None else learnt.spread

    def knows(self, kinds: Iterable[str], name: str) -> bool:
        """Return whether a request of one of the kinds was observed at instances of a name."""
        return any(_key(kind, name) in self._known for kind in kinds)

    def observe(self, request: Request, name: str, seconds: float) -> None:
        """Learn from the seconds of a request there."""
        kind, size = request
        key = _key(kind, name)
        if key not in self._known:
            self._known[key] = LearntLatency(LatencyLine(prior_s=self.prior_s))
        drifts = self._known[key].drifts
        self._known[key].observe(seconds, size)
        if self._known[key].drifts > drifts:
            _log.warning("latency_drifted tier=%s kind=%s seconds=%s", self.tier, key, seconds)

    def dump(self) -> dict[str, dict[str, object]]:
        """Return the latencies of each kind, as JSON values for `recall`."""
        return {key: known.dump() for key, known in self._known.items()}

    def recall(self, learnt: Mapping[str, Mapping[str, object]]) -> None:
        """Go on from latencies that were learnt earlier; values of another form are left out."""
        for key, dumped in learnt.items():
            try:
                self._known[key] = LearntLatency.load(dumped)
            except InvalidInput as error:
                _log.warning("latency_not_recalled tier=%s kind=%s: %s", self.tier, key, error)


def _key(kind: str, name: str) -> str:
    return f"{kind} at {name}"


MOST_CLASSES = 64
_PER_OCTAVE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeSeconds:
    """What requests of each class keep an instance of a type busy for, as was learnt."""

    mean_s: FloatArray  # (B,)
    std_s: FloatArray  # (B,), of single requests


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedWorkload:
    """The latest requests of a deployment, none from before the last change."""

    plan_id: str
    sizes: FloatArray  # (B,), of each class, rising: the mean of those in it
    classes: IntArray  # (N,), of each request, the oldest first
    rate_per_s: float | None  # of arrivals, refused ones too; None: too few arrived
    # tier -> type of its machines -> what was learnt; types that served nothing are left out
    seconds: Mapping[str, Mapping[str, TypeSeconds]]
    # tier -> mean seconds that answers spent elsewhere, but for waiting; empty: nothing was
    # answered
    elsewhere_s: Mapping[str, float]


def classes_of(sizes: FloatArray) -> tuple[FloatArray, IntArray]:  # (N,) -> (B,), (N,)
    """Return the mean sizes of classes, rising, and the class of each size, `> 0`."""
    if len(sizes) == 0:
        return np.zeros(0), np.zeros(0, dtype=np.int64)
    octaves = np.log2(sizes)
    spread = float(octaves.max() - octaves.min())
    steps = min(_PER_OCTAVE, (MOST_CLASSES - 1) / spread) if spread > 0 else _PER_OCTAVE
    _, classes = np.unique(np.floor(steps * (octaves - octaves.min())), return_inverse=True)
    counts = np.bincount(classes)
    return np.bincount(classes, weights=sizes) / counts, classes.astype(np.int64)


def seconds_of(
    latencies: TierLatencies,
    kinds: Iterable[str],  # of requests: each comes once with every request to the pipeline
    types: Iterable[str],
    sizes: FloatArray,  # (B,)
) -> dict[str, TypeSeconds]:
    """Return the seconds of requests on the types that are known of all kinds."""
    kinds, by_type = tuple(kinds), {}
    for name in types:
        if not all(latencies.knows([kind], name) for kind in kinds):
            continue
        mean_s, variance = np.zeros(len(sizes)), np.zeros(len(sizes))
        for kind in kinds:
            for i, size in enumerate(sizes.tolist()):
                seconds = latencies.mean((kind, size), name)
                mean_s[i] += seconds
                variance[i] += (seconds * relative_deviation(latencies.spread(kind, name))) ** 2
        by_type[name] = TypeSeconds(mean_s=mean_s, std_s=np.sqrt(variance))
    return by_type


def relative_deviation(spread: float) -> float:
    """Return the deviation over the mean of a log-normal with that deviation of logarithms."""
    return sqrt(max(exp(spread**2) - 1.0, 0.0))
