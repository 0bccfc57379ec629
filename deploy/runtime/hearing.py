"""What a dispatcher saw of requests, one by one, for one of another process that is told of it.

So the service learns what requests are like and what they take where, although others send them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple, TypeVar

MOST_KEPT = 2_000
"""Requests that are kept until they are told, which is every second: of more the latest are."""


class Came(NamedTuple):
    """A request that came."""

    at: float  # seconds, by a clock; told: how many seconds ago
    size: float  # as its pipeline has it, in any unit
    waiting: int  # requests that it met


class Took(NamedTuple):
    """What an instance took for a request."""

    tier: str
    kind: str  # see `TierLatencies`, as size and name
    size: float
    name: str  # of its type, or its address
    seconds: float


_One = TypeVar("_One")


@dataclass(slots=True, eq=False)
class Sightings:
    """The latest that a dispatcher saw, and how much it saw in all."""

    came: deque[Came] = field(default_factory=lambda: deque(maxlen=MOST_KEPT))
    took: deque[Took] = field(default_factory=lambda: deque(maxlen=MOST_KEPT))
    came_count: int = 0
    took_count: int = 0

    def note_came(self, came: Came) -> None:
        """Note a request that came."""
        self.came.append(came)
        self.came_count += 1

    def note_took(self, took: Took) -> None:
        """Note what one took."""
        self.took.append(took)
        self.took_count += 1


def latest(kept: Collection[_One], count: int) -> Iterator[_One]:
    """Return the last so many of what is kept, `>= 0`: all, if more were seen than are kept."""
    return islice(kept, max(len(kept) - count, 0), None)
