"""Second hearings: no value of a knob is given up for what one input said of it.

All configurations meet the inputs in one order, and what a value fails at on an input, all
configurations with that value fail at. So three of them that met the same hard input say little
more than one; models take them for three, are sure, and measure the neighbours of what is known
on all inputs before they come back. Where that value belongs to an accurate operator that is too
slow to be looked at often, it is in most of what would do, and the search is lost: 17.7 s
instead of 0.4 s.

So a small part of the seconds goes to the values that were met on the fewest inputs, whatever
models say of them, as soon as it pays for a hearing: short searches know none of it, long
ones cannot overlook a value.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pipelines.configuration import IndexArray
from pipelines.profile import FloatArray


class Hearings:
    """Keeps on how many inputs every knob value was met, and what hearings may cost.

    Args:
        knobs: Index of each knob's value, shape (candidates, knobs).
        part: Of the seconds of all else that hearings may take, in [0, 1).
        enough: Inputs after which a value needs no hearing, `>= 1`.
        step: Inputs of a hearing that its value was never met on, `>= 1`.
    """

    def __init__(self, knobs: IndexArray, *, part: float, enough: int, step: int) -> None:
        self._knobs = knobs
        self._part, self._enough, self._step = part, enough, step
        self._met = [np.zeros(int(column.max()) + 1, dtype=np.int64) for column in knobs.T]
        self._left_s = 0.0

    def met(self, row: int, inputs: int) -> None:
        """Take in that a candidate has met so many inputs, here or in earlier queries."""
        for met, value in zip(self._met, self._knobs[row], strict=True):
            met[value] = max(met[value], inputs)

    def paid(self, seconds: float, *, hearing: bool) -> None:
        """Take in what a measurement cost, and whether it was a hearing."""
        self._left_s += -seconds if hearing else self._part * seconds

    def due(self, worth: FloatArray, cost: Callable[[int, int], float]) -> tuple[int, int] | None:
        """Give which candidate to measure on how many inputs in all; None: no hearing is due.

        The value met on the fewest inputs that can be paid for is heard, through the candidate
        with it that is worth most.

        Args:
            worth: Of measuring each candidate, shape (candidates,); -inf: it is not to be.
            cost: Seconds of measuring a candidate on so many inputs in all.
        """
        if self._left_s <= 0:
            return None
        values = ((int(n), k, v) for k, met in enumerate(self._met) for v, n in enumerate(met))
        for inputs, knob, value in sorted(values):
            if inputs >= self._enough:
                return None
            having = np.where(self._knobs[:, knob] == value, worth, -np.inf)
            row, wanted = int(having.argmax()), min(inputs + self._step, self._enough)
            if np.isfinite(having[row]) and cost(row, wanted) <= self._left_s:
                return row, wanted
        return None
