"""Exponential back-off, for whatever fails and is tried again: the one rule of this project.

It is a value, so every loop keeps its own clock, its own thread or event loop, and its own end.
"""

from __future__ import annotations

from dataclasses import dataclass

_MOST_DOUBLINGS = 60  # beyond it a float overflows, and every longest pause is reached


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses that double with each failure in a row, up to a longest one."""

    first_s: float  # `>= 0`
    longest_s: float  # `>= 0`

    def pause_s(self, failures: int) -> float:
        """Return the pause after a number of failures in a row, `>= 1`."""
        return min(self.first_s * 2.0 ** min(failures - 1, _MOST_DOUBLINGS), self.longest_s)

    def spread_s(self, failures: int, chance: float) -> float:
        """Return the same, spread over half to all of it by a `chance` in [0, 1).

        Many who failed at once then do not come back at once.
        """
        return self.pause_s(failures) * (1 + chance) / 2
