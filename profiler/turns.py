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
from types import TracebackType
from typing import Self

_Key = tuple[str, str]


class Turns:
    """Gives turns, for one lot of measurements. Turns must be begun in the order given."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._given = self._begun = 0
        # Fingerprint and content of an input -> turns that may run it yet, in their order.
        self._open: dict[_Key, list[int]] = {}

    def take(self) -> Turn:
        """Give the next turn; for one thread only."""
        self._given += 1
        return Turn(self, self._given - 1)

    def _begin(self, number: int, keys: Sequence[_Key]) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._begun == number)
            self._begun += 1
            for key in keys:
                self._open.setdefault(key, []).append(number)
            self._changed.notify_all()
            self._changed.wait_for(
                # Not `==`: what was settled for this turn may be open again for a later one.
                lambda: all(self._open.get(key, [number])[0] >= number for key in keys)
            )

    def _settle(self, key: _Key) -> None:
        with self._changed:
            self._open.pop(key, None)
            self._changed.notify_all()

    def _end(self, number: int, keys: Sequence[_Key]) -> None:
        with self._changed:
            for key in keys:
                left = [turn for turn in self._open.pop(key, ()) if turn != number]
                if left:
                    self._open[key] = left
            self._changed.notify_all()


class Turn:
    """A turn, given by `Turns`. A context: when it ends, nobody waits for it any more."""

    def __init__(self, turns: Turns, number: int) -> None:
        self._turns = turns
        self._number = number
        self._content = ""
        self._keys: list[_Key] | None = None  # None: not begun

    def __enter__(self) -> Self:
        """Give itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End it, begun or not."""
        if self._keys is None:
            self.begin((), "")
        self._turns._end(self._number, self._keys or ())

    def begin(self, prints: Sequence[str], content: str) -> None:
        """Return when all earlier turns have begun and nothing that they share with it is open.

        Args:
            prints: Fingerprints of all operators.
            content: Content hash of the input.
        """
        self._content = content
        self._keys = [(print_, content) for print_ in prints]
        self._turns._begin(self._number, self._keys)

    def settle(self, print_: str) -> None:
        """Say that the output of this operator is there or need not be: all may go on."""
        self._turns._settle((print_, self._content))
