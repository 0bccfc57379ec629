"""How busy the machine was with other things while operators were profiled on it.

An operator that waits for a core looks slow, and its plan with it. What others take is what all
processors did, less what this process and those that it started did.
"""

from __future__ import annotations

import contextlib

import psutil

from circinus.pipelines.clock import Clock

_SLOWER = 1.2  # times, from which it is told: intervals hold less
_SHORTEST_S = 1.0  # of profiling that says anything: processors' times are counted in hundredths


class OtherLoad:
    """Watches from when it is made."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._start_s, self._others_s = clock.now(), _others_s()

    def remarks(self, width: int) -> tuple[str, ...]:
        """Tell if less than a core each was left for `width` operators at once; else nothing."""
        took_s = self._clock.now() - self._start_s
        cores = psutil.cpu_count() or 1
        busy = (_others_s() - self._others_s) / max(took_s, _SHORTEST_S)
        slower = min(width / max(cores - busy, 0.1), width + busy)
        if took_s < _SHORTEST_S or slower < _SLOWER:
            return ()
        return (
            f"other programs kept {busy:.1f} of {cores} cores busy while operators were profiled: "
            f"latencies may be up to {slower:.1f} times too long; plan again on a quiet machine",
        )


def _others_s() -> float:
    times = psutil.cpu_times()
    own = psutil.Process()
    mine = sum(_used_s(process) for process in [own, *own.children(recursive=True)])
    return float(times.user + times.nice + times.system) - mine


def _used_s(process: psutil.Process) -> float:
    with contextlib.suppress(psutil.NoSuchProcess):
        used = process.cpu_times()
        return float(used.user + used.system + used.children_user + used.children_system)
    return 0.0
