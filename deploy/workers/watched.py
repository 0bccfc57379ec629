"""Runs a module in a process that ends with its parent: `python watched.py PARENT MODULE ...`.

The watch begins before the first import of the project, as imports take seconds and may hang. So
this file imports the standard library alone, and is run by its path: by its name Python would
import the packages above it first.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import signal
import sys
import threading

_PR_SET_PDEATHSIG = 1


def watched(module: str) -> list[str]:
    """Return the command of a process that runs a module and ends with the thread that starts it.

    Its standard input has to be a pipe that this process keeps open and writes nothing to.
    """
    return [sys.executable, __file__, str(os.getpid()), module]


def end_with(parent: int) -> None:
    """Make this process end when `parent` does; SystemExit if it is gone already.

    Two ways, as each has a hole: the kernel's signal is Linux' alone and no use to who missed it,
    and another child may hold on to the other end of our standard input.
    """
    die_with(parent)
    threading.Thread(target=_end_with_input, name="parent", daemon=True).start()


def die_with(parent: int) -> None:
    """Let the kernel kill this process when the thread that started it ends.

    SystemExit if `parent` is not its parent any more. The kernel's signal is Linux' alone.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        raise SystemExit("the process that started this worker is gone")


def _end_with_input() -> None:
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os._exit(0)  # no process is left to notice a clean end


def _main(parent: str, *command: str) -> None:
    end_with(int(parent))
    sys.path[0] = os.getcwd()  # as `python -m` has it: no module imports this folder's names
    sys.argv[:] = command
    runpy.run_module(command[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _main(*sys.argv[1:])
