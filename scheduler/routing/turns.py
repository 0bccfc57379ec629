"""Which unit the next request goes to: by traffic weights, in turns.

Smooth weighted round robin, as nginx has it: after any number of requests n, unit i with part w_i
of them had n w_i, give or take less than the number of units. Drawing by weight would be off by
the root of n, and what comes twice in a row to a unit waits there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


def parts_now(
    weights: Mapping[str, float], can: Mapping[str, float], *, changing: bool
) -> dict[str, float]:
    """Return each unit's part of the requests at this moment; they sum to 1. Empty: none runs.

    `can` is what those that run can do, in requests per second, 0: none of it runs. While units
    start that weights count on (`changing`), and where all weight is on what does not run, parts
    are by what those that run can do.
    """
    there = {name: per_s for name, per_s in can.items() if per_s > 0}
    parts = {name: weights[name] for name in there if weights.get(name, 0.0) > 0}
    if changing or not parts:
        parts = there
    total = sum(parts.values())
    return {name: part / total for name, part in parts.items()}


@dataclass(slots=True)
class UnitTurns:
    """Whose turn it is."""

    _owed: dict[str, float] = field(default_factory=dict)

    def next(self, parts: Mapping[str, float]) -> str:
        """Return the unit that the next request goes to, where parts, not empty, sum to 1."""
        # who is gone, or new, starts even: owing it what it missed would flood it
        self._owed = {name: self._owed.get(name, 0.0) + part for name, part in parts.items()}
        name = max(self._owed, key=lambda each: self._owed[each])
        self._owed[name] -= 1.0
        return name
