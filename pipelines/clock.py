"""Time as an argument: the one home of clocks and sleeping, and of sums of waits."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
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
    """Time that moves only when it is set: for replays and tests."""

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


_SHORTEST_S = 1.0  # that is worth a remark


@dataclass(slots=True)
class _Wait:
    """What was waited for one thing."""

    over_s: float = 0.0  # seconds of waits that are over
    began: float = 0.0  # when the wait that is under way began
    waiting: int = 0  # threads


@dataclass(slots=True)
class Waits:
    """Adds up waits, of any thread."""

    clock: Clock
    _all: _Wait = field(default_factory=_Wait, init=False)
    _each: dict[str, _Wait] = field(default_factory=dict, init=False)
    _lock: Lock = field(default_factory=Lock, init=False, repr=False)

    @contextmanager
    def during(self, what: str) -> Iterator[None]:
        """Count the block as waiting for something, named as in "waited for ..."."""
        self._change(what, 1)
        try:
            yield
        finally:
            self._change(what, -1)

    @property
    def seconds(self) -> float:
        """Wall-clock seconds in which anybody waited for anything."""
        with self._lock:
            return self._of(self._all)

    @property
    def by_cause(self) -> Mapping[str, float]:
        """Wall-clock seconds in which anybody waited, by what for."""
        with self._lock:
            return {what: self._of(wait) for what, wait in self._each.items()}

    def remarks(self) -> tuple[str, ...]:
        """Return what to know of planning that waited: nothing of short waits."""
        return tuple(
            f"waited {seconds:.1f} s for {what}, which is none of the latency, and limits nothing "
            "but limits.response_s"
            for what, seconds in self.by_cause.items()
            if seconds >= _SHORTEST_S
        )

    def _change(self, what: str, by: int) -> None:
        with self._lock:
            now = self.clock.now()
            for wait in (self._all, self._each.setdefault(what, _Wait())):
                if by > 0 and not wait.waiting:
                    wait.began = now
                wait.waiting += by
                if not wait.waiting:
                    wait.over_s += now - wait.began

    def _of(self, wait: _Wait) -> float:
        return wait.over_s + (self.clock.now() - wait.began if wait.waiting else 0.0)
