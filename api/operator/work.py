"""Which objects are to be looked at, and when: each by one worker at a time, with back-off.

An object that is added while a worker has it is looked at once more afterwards, so nothing that
was heard in between is lost. One that is due earlier goes first.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, field
from threading import Condition

from circinus.pipelines.backoff import Backoff
from circinus.pipelines.clock import Clock


@dataclass(slots=True, kw_only=True, eq=False)
class WorkQueue:
    """Keys of objects and when each is due. Safe to share between threads."""

    clock: Clock
    _due: dict[str, float] = field(default_factory=dict, init=False)  # key -> when
    _order: list[tuple[float, str]] = field(default_factory=list, init=False)  # may have old ones
    _in_hand: dict[str, float] = field(default_factory=dict, init=False)  # key -> since when
    _times: dict[str, int] = field(default_factory=dict, init=False)  # key -> in a row
    _changed: Condition = field(default_factory=Condition, init=False)
    _closed: bool = field(default=False, init=False)

    def add(self, key: str) -> None:
        """Let an object be looked at now: something about it changed."""
        with self._changed:
            self._times.pop(key, None)
            self._put(key, self.clock.now())

    def take(self) -> str | None:
        """Wait for an object that is due and give it; None: the queue is closed."""
        with self._changed:
            while not self._closed:
                found = self._pick()
                if isinstance(found, str):
                    return found
                self._changed.wait(found)
            return None

    def ready(self) -> str | None:
        """Return an object that is due, as `take`; None: there is none now."""
        with self._changed:
            found = self._pick()
            return found if isinstance(found, str) else None

    def done(self, key: str, again: Backoff | float | None) -> None:
        """Give back what was taken; to be looked at again so, in so many seconds, or not."""
        with self._changed:
            self._in_hand.pop(key, None)
            if isinstance(again, Backoff):
                self._times[key] = times = self._times.get(key, 0) + 1
                again = again.pause_s(times)
            else:
                self._times.pop(key, None)
            if again is not None:
                self._put(key, self.clock.now() + again)
            self._changed.notify_all()  # it may have been added meanwhile

    def close(self) -> None:
        """Let whoever waits go."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    @property
    def in_hand(self) -> Mapping[str, float]:
        """Return what workers have, and since when."""
        with self._changed:
            return dict(self._in_hand)

    def __len__(self) -> int:
        """Return how many objects are to be looked at some time."""
        return len(self._due)

    def _put(self, key: str, when: float) -> None:
        if when < self._due.get(key, float("inf")):
            self._due[key] = when
            heapq.heappush(self._order, (when, key))
            self._changed.notify_all()  # who waits for a later one waits too long now

    def _pick(self) -> str | float | None:
        """Return a due key, else the seconds until one is; None: when one is added."""
        now, held = self.clock.now(), []
        try:
            while self._order:
                when, key = self._order[0]
                if self._due.get(key) != when:  # it was due earlier, and is done
                    heapq.heappop(self._order)
                elif when > now:
                    return when - now
                elif key in self._in_hand:
                    held.append(heapq.heappop(self._order))
                else:
                    heapq.heappop(self._order)
                    del self._due[key]
                    self._in_hand[key] = now
                    return key
            return None
        finally:
            for entry in held:
                heapq.heappush(self._order, entry)
