"""What requests take where, learnt from answers, and where that outlives the process."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from circinus.pipelines.errors import InvalidInput
from circinus.scheduler.dispatch.learnt_latency import LatencyLine, LearntLatency
from circinus.scheduler.dispatch.policy import FloatArray

_log = logging.getLogger(__name__)

Learnt = Mapping[str, Mapping[str, Mapping[str, object]]]
"""Tier -> kind of request and instance -> what `LearntLatency.dump` gave: JSON values."""

Request = tuple[str, float]
"""Kind and size: larger requests of a kind take longer."""


class LatencyMemory(Protocol):
    """Keeps what was learnt of a plan's latencies. Safe to share between threads.

    Calls may take long: they are made off the event loop. Unavailable if they cannot be answered
    now, which the memory itself logs.
    """

    def recall(self, plan_id: str) -> Learnt:
        """Return what was kept of a plan last; empty if nothing was."""

    def keep(self, plan_id: str, learnt: Learnt) -> None:
        """Replace what is kept of a plan."""


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
        """Learn from what a request took there."""
        kind, size = request
        key = _key(kind, name)
        if key not in self._known:
            self._known[key] = LearntLatency(LatencyLine(prior_s=self.prior_s))
        drifts = self._known[key].drifts
        self._known[key].observe(seconds, size)
        if self._known[key].drifts > drifts:
            _log.warning("latency_drifted tier=%s kind=%s seconds=%s", self.tier, key, seconds)

    def dump(self) -> dict[str, dict[str, object]]:
        """Return what was learnt of each kind, as JSON values for `recall`."""
        return {key: known.dump() for key, known in self._known.items()}

    def recall(self, learnt: Mapping[str, Mapping[str, object]]) -> None:
        """Go on from what was learnt earlier; what is none of it is left out."""
        for key, dumped in learnt.items():
            try:
                self._known[key] = LearntLatency.load(dumped)
            except InvalidInput as error:
                _log.warning("latency_not_recalled tier=%s kind=%s: %s", self.tier, key, error)


def _key(kind: str, name: str) -> str:
    return f"{kind} at {name}"
