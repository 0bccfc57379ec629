"""What requests to deployed plans gave lately: seconds, and scores where the output is known."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from deploy.dispatcher import RequestResult
from planner.drift import Seen

WINDOW = 200
"""Latest requests that are judged by."""


@dataclass(frozen=True, slots=True)
class KnownData:
    """Which examples requests were taken from.

    Attributes:
        count: Number of examples.
        seed: Of the examples.
    """

    count: int
    seed: int


@dataclass(slots=True)
class _Window:
    plan_id: str
    results: deque[RequestResult] = field(default_factory=lambda: deque(maxlen=WINDOW))
    scores: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))
    data: KnownData | None = None


class RequestWindows:
    """The latest requests of every query's deployed plan. Used within one event loop."""

    def __init__(self) -> None:
        self._windows: dict[str, _Window] = {}

    def note(
        self,
        query_id: str,
        plan_id: str,
        result: RequestResult,
        *,
        score: float | None = None,
        data: KnownData | None = None,
    ) -> None:
        """Take in an answer; those of another plan of the query are forgotten.

        Args:
            query_id: Whose.
            plan_id: That answered.
            result: What it gave.
            score: Of its output; None: what is right is not known.
            data: Which examples it was taken from; None: none.
        """
        window = self._windows.get(query_id)
        if window is None or window.plan_id != plan_id:
            window = self._windows[query_id] = _Window(plan_id)
        window.results.append(result)
        if score is not None:
            window.scores.append(score)
            window.data = data

    def queries(self) -> tuple[tuple[str, str], ...]:
        """Give (query id, plan id) of all that got requests."""
        return tuple((query_id, window.plan_id) for query_id, window in self._windows.items())

    def seen(self, query_id: str) -> Seen:
        """Give what the latest requests of a query gave, which must have had some."""
        window = self._windows[query_id]
        tiers = {tier for result in window.results for tier in result.tier_s}
        return Seen(
            latency_s=np.array([result.latency_s for result in window.results]),
            tier_s={
                tier: float(np.mean([result.tier_s.get(tier, 0.0) for result in window.results]))
                for tier in tiers
            },
            # What is no link's wait here is the network's own, in a cluster.
            moved_s=float(np.mean([r.transfer_s + r.overhead_s for r in window.results])),
            scores=np.array(window.scores),
        )

    def data(self, query_id: str) -> KnownData | None:
        """Give the examples that the latest known output came from; None: there was none."""
        return self._windows[query_id].data

    def forget(self, query_id: str) -> None:
        """Start anew for a query."""
        self._windows.pop(query_id, None)
