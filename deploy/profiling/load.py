"""How busy the machine is while operators are profiled on it.

An operator that waits for a core looks slow, and its plan with it. What other programs take is
reported; what operators take from each other stays small: at most as many run at once as there are
cores, and calls of endpoints only as many as leave processors idle.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from threading import Condition

import psutil

from circinus.pipelines.clock import Clock

_SLOWER = 1.2  # times, from which it is reported: intervals hold less
_SHORTEST_S = 1.0  # of profiling that can be judged: processors' times are counted in hundredths
_LOOK_S = 0.5  # between two looks at how busy processors are
_IDLE = 0.5
"""Part of the processors that is idle while one more call is let in. At half, work that waits for
one of two processors waits a third of its own time (M/M/2), and less on more of them."""


def _busy_s() -> float:
    """Return the seconds that all processors computed, whatever for."""
    times = psutil.cpu_times()
    return float(times.user + times.nice + times.system)


class CallsAtOnce:
    """Lets operators that call endpoints run, as many at once as do not matter to each other.

    They wait, so there may be more of them than cores: one more after each look that found enough
    of the processors idle, half as many after one that did not, `least` at least. A context
    manager, for threads.
    """

    def __init__(
        self, clock: Clock, least: int, busy_s: Callable[[], float] = _busy_s, cores: int = 0
    ) -> None:
        self._clock, self._least, self._busy_s = clock, least, busy_s
        self._cores = cores or psutil.cpu_count() or 1
        self._changed = Condition()
        self._running = 0
        self.most = least
        """So many may run at once now."""
        self._looked = clock.now(), busy_s()

    def __enter__(self) -> None:
        with self._changed:
            while self._running >= self.most:
                self._changed.wait()
            self._running += 1

    def __exit__(self, *raised: object) -> None:
        with self._changed:
            self._look()
            self._running -= 1
            self._changed.notify_all()

    def _look(self) -> None:
        at, before_s = self._looked
        now = self._clock.now()
        if now - at < _LOOK_S:
            return
        busy_s = self._busy_s()
        self._looked = now, busy_s
        if busy_s - before_s > (1 - _IDLE) * self._cores * (now - at):
            self.most = max(self.most // 2, self._least)
        elif self._running >= self.most:
            self.most += 1


class OtherLoad:
    """Watches from when it is made."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._start_s, self._others_s = clock.now(), _others_s()

    def remarks(self, at_once: int) -> tuple[str, ...]:
        """Return a remark if other programs slowed down operators, so many at once; else none."""
        passed_s = self._clock.now() - self._start_s
        cores = psutil.cpu_count() or 1
        busy = (_others_s() - self._others_s) / max(passed_s, _SHORTEST_S)
        needed = min(at_once, cores)
        slower = min(needed / max(cores - busy, 0.1), 1 + busy)
        if passed_s < _SHORTEST_S or slower < _SLOWER:
            return ()
        return (
            f"other programs kept {busy:.1f} of {cores} cores busy while operators were profiled: "
            f"latencies may be up to {slower:.1f} times too long; plan again on a quiet machine",
        )


def _others_s() -> float:
    own = psutil.Process()
    return _busy_s() - sum(_used_s(process) for process in [own, *own.children(recursive=True)])


def _used_s(process: psutil.Process) -> float:
    with contextlib.suppress(psutil.NoSuchProcess):
        used = process.cpu_times()
        return float(used.user + used.system + used.children_user + used.children_system)
    return 0.0
