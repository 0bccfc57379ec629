"""What a queue tells of itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFigures:
    """A queue at a moment, for people and monitors.

    Attributes:
        waiting: Requests without a turn.
        busy: Addresses of instances that are at work or out.
        idle: Number of requests that could start now.
        answered: Requests answered so far.
        late: Those of them that took longer than their deadline.
        late_s: By how much, together.
        late_max_s: By how much the worst of them.
        turned_away: Requests refused or given up so far.
        lost: Times that an instance went away with a request.
        waited_s: Of the answered, for an instance's turn, together.
        predicted_s: Of the calls of the answered, together, as predicted when they started: a
            quantile.
        observed_s: What these calls took, together.
        drifts: Times that latencies had changed for good and were learnt anew.
        observed_over_predicted: Mean of what calls took over their predicted quantile; 1 before
            the first.
    """

    waiting: int
    busy: tuple[str, ...]
    idle: int
    answered: int
    late: int
    late_s: float
    late_max_s: float
    turned_away: int
    lost: int
    waited_s: float
    predicted_s: float
    observed_s: float
    drifts: int
    observed_over_predicted: float


@dataclass(slots=True)
class Counts:
    """What a queue has counted so far; see `QueueFigures`."""

    answered: int = 0
    late: int = 0
    late_s: float = 0.0
    late_max_s: float = 0.0
    turned_away: int = 0
    lost: int = 0
    waited_s: float = 0.0
    predicted_s: float = 0.0
    observed_s: float = 0.0
    ratio_sum: float = 0.0
    ratios: int = 0
