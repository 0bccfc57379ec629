"""Time as an argument: the one home of clocks and sleeping."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol


class Clock(Protocol):
    """Seconds that pass. Implementations are safe to share between threads."""

    def now(self) -> float:
        """Return monotonic seconds from an arbitrary zero."""

    def timestamp(self) -> float:
        """Return seconds since the Unix epoch, UTC."""

    def sleep(self, seconds: float) -> None:
        """Return after `seconds`; at once when they are not positive."""


@dataclass(frozen=True, slots=True)
class SystemClock:
    """The machine's own time."""

    def now(self) -> float:
        """Return seconds of the finest monotonic counter."""
        return time.perf_counter()

    def timestamp(self) -> float:
        """Return seconds since the Unix epoch, UTC."""
        return time.time()

    def sleep(self, seconds: float) -> None:
        """Block this thread for `seconds`."""
        if seconds > 0:
            time.sleep(seconds)


@dataclass(frozen=True, slots=True)
class ProcessorClock(SystemClock):
    """Processor time of this process: what work costs, however busy the machine is."""

    def now(self) -> float:
        """Return the seconds that this process has computed, in all its threads; none asleep."""
        return time.process_time()


@dataclass(slots=True)
class ManualClock:
    """Time that moves only when told to: for replays and tests."""

    seconds: float = 0.0

    def now(self) -> float:
        """Return the seconds set so far."""
        return self.seconds

    def timestamp(self) -> float:
        """Return the same seconds as `now`."""
        return self.seconds

    def sleep(self, seconds: float) -> None:
        """Move time on by `seconds`."""
        self.seconds += max(seconds, 0.0)
