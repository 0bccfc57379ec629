"""What the latest requests of a deployment got, one by one, and how hard its instances work.

Objectives are judged by these (`api.use_cases.objectives`): an interval of a percentile needs each
latency, where `deploy.runtime.traffic` keeps buckets.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from circinus.deploy.runtime.traffic import Lately
from circinus.pipelines.model.profile import FloatArray

MOST_ANSWERS = 400
"""Answers that are kept. 348 bound a 99th percentile from both sides with 95 %."""


class LatestAnswers:
    """When the latest answers came, and what each took and cost. Not for several threads."""

    def __init__(self, most: int = MOST_ANSWERS) -> None:
        self._kept: deque[tuple[float, float, float]] = deque(maxlen=most)

    def note(self, at: float, latency_s: float, usd: float) -> None:
        """Take in an answer: seconds from the request's arrival, US dollars of its calls."""
        self._kept.append((at, latency_s, usd))

    def seen(self, now: float) -> AnswersSeen:
        """Return them, the oldest first."""
        rows = np.array(self._kept).reshape(-1, 3)
        return AnswersSeen(ago_s=now - rows[:, 0], latency_s=rows[:, 1], usd=rows[:, 2])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AnswersSeen:
    """Answers, the oldest first."""

    ago_s: FloatArray  # since each was given, shape (n,)
    latency_s: FloatArray  # from the arrival of its request, (n,)
    usd: FloatArray  # that its calls cost, (n,)

    def within(self, span_s: float) -> AnswersSeen:
        """Return those of the last so many seconds."""
        late = self.ago_s <= span_s
        return AnswersSeen(
            ago_s=self.ago_s[late], latency_s=self.latency_s[late], usd=self.usd[late]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TierLoad:
    """How hard the instances of a tier work at a moment."""

    waiting: int  # requests without a turn
    places: int  # requests that they take at once
    workers: int  # that take requests

    @property
    def queues(self) -> bool:
        """Whether more wait than could be at work."""
        return self.waiting > self.places


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SeenRequests:
    """What the requests of a deployment got lately, for whoever judges it."""

    plan_id: str
    since_s: float  # seconds that it serves already
    arrivals_per_s: float  # now, those too that are refused
    lately: Lately  # counts of the last minute
    answers: AnswersSeen
    tiers: Mapping[str, TierLoad] = field(default_factory=dict)
