"""Measurements made at once that cost together what they cost one after the other.

Each takes a turn. The one rule: before anything is run for it, what it shares with earlier turns
is settled: its output is there, or it is known to fail, or those turns ended without it. From
there on it does what it would do alone. In a DAG it so waits also for what an earlier turn runs
before the shared operator: were it to run ahead, it would pay for what a failure there spares it.
Nobody waits for a later turn, and turns begin in their order, so each of them ends.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager

_Key = tuple[str, str]


class Turns:
    """Returns turns, for one lot of measurements. Turns must be begun in the order given."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.begun = 0
        # Fingerprint and content of an input -> turns that may run it yet, in their order.
        self.open: dict[_Key, list[int]] = {}
        self._given = 0

    def take(self) -> Turn:
        """Return the next turn; for one thread only."""
        self._given += 1
        return Turn(self, self._given - 1)


class Turn(AbstractContextManager["Turn"]):
    """A turn, given by `Turns`. A context: when it ends, nobody waits for it any more."""

    def __init__(self, turns: Turns, number: int) -> None:
        self._turns = turns
        self._number = number
        self._content = ""
        self._keys: list[_Key] | None = None  # None: not begun

    def __exit__(self, *details: object) -> None:
        """End it, begun or not."""
        if self._keys is None:
            self.begin((), "")
        turns = self._turns
        with turns.changed:
            for key in self._keys or ():
                left = [turn for turn in turns.open.pop(key, ()) if turn != self._number]
                if left:
                    turns.open[key] = left
            turns.changed.notify_all()

    def begin(self, prints: Sequence[str], content: str) -> None:
        """Return when all earlier turns have begun and nothing that they share with it is open.

        They share what has the fingerprint of an operator and the content hash of the input.
        """
        self._content = content
        self._keys = keys = [(print_, content) for print_ in prints]
        turns, number = self._turns, self._number
        with turns.changed:
            turns.changed.wait_for(lambda: turns.begun == number)
            turns.begun += 1
            for key in keys:
                turns.open.setdefault(key, []).append(number)
            turns.changed.notify_all()
            turns.changed.wait_for(
                # Not `==`: what was settled for this turn may be open again for a later one.
                lambda: all(turns.open.get(key, [number])[0] >= number for key in keys)
            )

    def settle(self, print_: str) -> None:
        """Say that the output of this operator is there or need not be: all may go on."""
        with self._turns.changed:
            self._turns.open.pop((print_, self._content), None)
            self._turns.changed.notify_all()
