"""A worker must not outlive the process that started it."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading

_PR_SET_PDEATHSIG = 1


def end_with(parent: int) -> None:
    """Make this process end when `parent` does, however that ends.

    Two ways, as each has a hole: the kernel's signal comes also when only the thread that
    started us ends, and another child may hold on to the other end of our standard input.

    Raises:
        SystemExit: If the parent is gone already.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        raise SystemExit("the process that started this worker is gone")
    threading.Thread(target=_end_with_input, name="parent", daemon=True).start()


def _end_with_input() -> None:
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os._exit(0)  # nobody is left to hear of a clean end
