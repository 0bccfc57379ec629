"""What requests to deployed plans gave lately: seconds, and scores where the output is known."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from deploy.dispatcher import RequestResult
from planner.drift import Seen

WINDOW = 200
"""Latest requests that are judged by, and examples among them."""


@dataclass(frozen=True, slots=True)
class KnownData:
    """Which examples requests were taken from.

    Attributes:
        count: Number of examples.
        seed: Of the examples.
    """

    count: int
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """What an answer scored whose right output is known.

    Attributes:
        index: Of the example, from 0.
        data: The examples that it is one of.
        score: In [0, 1].
    """

    index: int
    data: KnownData
    score: float


@dataclass(slots=True)
class _Window:
    plan_id: str
    results: deque[RequestResult] = field(default_factory=lambda: deque(maxlen=WINDOW))
    scored: dict[tuple[KnownData, int], Scored] = field(default_factory=dict)  # the latest last

    def score(self, scored: Scored) -> None:
        # An example that comes again tells nothing new of the others.
        key = (scored.data, scored.index)
        self.scored.pop(key, None)
        self.scored[key] = scored
        if len(self.scored) > WINDOW:
            del self.scored[next(iter(self.scored))]


class RequestWindows:
    """The latest requests of every query's deployed plan. Used within one event loop."""

    def __init__(self) -> None:
        self._windows: dict[str, _Window] = {}

    def note(
        self,
        query_id: str,
        plan_id: str,
        result: RequestResult,
        scored: Scored | None = None,
    ) -> None:
        """Take in an answer; those of another plan of the query are forgotten.

        Of each example the latest answer counts.

        Args:
            query_id: Whose.
            plan_id: That answered.
            result: What it gave.
            scored: Its score; None: what is right is not known.
        """
        window = self._windows.get(query_id)
        if window is None or window.plan_id != plan_id:
            window = self._windows[query_id] = _Window(plan_id)
        window.results.append(result)
        if scored is not None:
            window.score(scored)

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
            scores=np.array([scored.score for scored in window.scored.values()]),
        )

    def data(self, query_id: str) -> KnownData | None:
        """Give the examples that the latest known output came from; None: there was none."""
        latest = next(reversed(self._windows[query_id].scored.values()), None)
        return None if latest is None else latest.data

    def forget(self, query_id: str) -> None:
        """Start anew for a query."""
        self._windows.pop(query_id, None)
