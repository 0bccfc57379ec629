"""What a worker asks of the kernel for its own process."""

from __future__ import annotations

import ctypes
import gc
import logging
import os
import resource
from contextlib import suppress
from threading import local

_log = logging.getLogger(__name__)
_PR_SET_TIMERSLACK = 29
_LEAST_NS = 1
_FACTS = local()  # of a thread: its process and the file that tells of it


OUT_OF_MEMORY = 12
"""Exit code of a worker whose operators hold on to most of the memory that it may have."""
_FORKED = 70  # exit code of a copy of a worker


def limit_memory(beyond_bytes: int) -> None:
    """Let this process take at most so much more memory of its own than it has now.

    Not address space: libraries map gigabytes of it that they never touch.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (_held_bytes() + beyond_bytes, hard))


def lift_if_held(beyond_bytes: int) -> bool:
    """Return whether, after `limit_memory`, over half of that memory stays in use.

    The limit is lifted then: to end in order takes memory, too.
    """
    gc.collect()
    most, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if _held_bytes() <= most - beyond_bytes / 2:
        return False
    resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))
    return True


def _held_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as facts:
        return int(facts.read().split()[5]) * resource.getpagesize()


def end_copy(original: int) -> None:
    """End this process if it is a copy of the `original` one: an operator forked and returned."""
    if os.getpid() != original:
        _log.error("fork_returned of=%d: the copy ends, and answers nothing", original)
        os._exit(_FORKED)


def forget_peak() -> None:
    """Let `peak_bytes` count from now on, where the kernel can."""
    with suppress(OSError), open("/proc/self/clear_refs", "w", encoding="ascii") as facts:
        facts.write("5")


def peak_bytes() -> int:
    """Give the most memory that this process had at once; programs that it calls do not count."""
    with open("/proc/self/status", encoding="ascii", errors="replace") as facts:
        found = next((line for line in facts if line.startswith("VmHWM:")), "VmHWM: 0 kB")
    return int(found.split()[1]) * 1024


def lost_s() -> float:
    """Give the seconds that this thread was ready to run and had no processor; 0 if unknown.

    Others had it, or a quota was used up.
    """
    with suppress(OSError, IndexError):
        return int(os.pread(_file_of_thread(), 64, 0).split()[1]) / 1e9
    return 0.0


def _file_of_thread() -> int:
    known: tuple[int, int] | None = getattr(_FACTS, "known", None)
    if known is None or known[0] != os.getpid():  # a copy of a process has the other's file
        file = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
        known = _FACTS.known = os.getpid(), file
    return known[1]


def sharpen_timers() -> None:
    """Let waits of this thread, and of threads it starts later, end as exactly as they can.

    They stand for shares and speeds; the kernel may end one 50 microseconds late, to save power.
    """
    ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, _LEAST_NS, 0, 0, 0)
