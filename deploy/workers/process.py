"""What a worker asks of the kernel for its own process."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
import threading

_PR_SET_PDEATHSIG, _PR_SET_TIMERSLACK = 1, 29
_LEAST_NS = 1


def limit_memory(beyond_bytes: int) -> None:
    """Let this process take at most so much more memory of its own than it has now.

    Not address space: libraries map gigabytes of it that they never touch.
    """
    with open("/proc/self/statm", encoding="ascii") as facts:
        held = int(facts.read().split()[5]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_DATA, (held + beyond_bytes, held + beyond_bytes))


def sharpen_timers() -> None:
    """Let waits of this thread, and of threads it starts later, end as exactly as they can.

    They stand for shares and speeds; the kernel may end one 50 microseconds late, to save power.
    """
    ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, _LEAST_NS, 0, 0, 0)


def end_with(parent: int) -> None:
    """Make this process end when `parent` does; SystemExit if it is gone already.

    Two ways, as each has a hole: the kernel's signal comes also when only the thread that
    started us ends, and another child may hold on to the other end of our standard input.
    """
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        raise SystemExit("the process that started this worker is gone")
    threading.Thread(target=_end_with_input, name="parent", daemon=True).start()


def _end_with_input() -> None:
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os._exit(0)  # nobody is left to hear of a clean end
