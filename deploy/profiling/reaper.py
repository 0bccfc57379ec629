"""Ends worker processes when their parent is gone, however it ended.

A worker that hangs in an operator sees nothing, and what was killed tidies nothing up. So a small
process of its own holds a pipe from the starter, which ends with it, and a list of what to kill.

    +PID    a worker was started; it may lead a process group of that number
    -PID    it was ended

This file is also that process: it imports nothing of the project, to be there at once.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from typing import BinaryIO


class Reaper:
    """Kills the processes that it watches, with their groups, once this process has ended."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        # Handed over: as a process of its own this file imports nothing of ours.
        command = [sys.executable, "-S", "-E", __file__]
        # A session of its own: neither an interrupt nor a hang-up of a terminal reaches it.
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, bufsize=0, start_new_session=True, env=environment
        )

    def watch(self, pid: int) -> None:
        """Kill it when this process ends."""
        self._write(f"+{pid}\n")

    def release(self, pid: int) -> None:
        """Leave it alone: it has ended."""
        self._write(f"-{pid}\n")

    def forget(self) -> None:
        """Close the pipe, in a forked copy of this process: it did not start them."""
        if self._process.stdin is not None:
            self._process.stdin.close()

    def close(self) -> None:
        """End it; what it still watches is killed."""
        self.forget()
        self._process.wait()

    def _write(self, line: str) -> None:
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError, ValueError):  # it was killed, or closed
                self._process.stdin.write(line.encode())


def kill_group(pid: int) -> None:
    """Kill a process and the group that it leads, if they are there."""
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)


def reap(changes: BinaryIO) -> None:
    """Follow the changes until their end, then kill what is left."""
    watched: set[int] = set()
    for line in changes:
        change, pid = line[:1], int(line[1:])
        watched.add(pid) if change == b"+" else watched.discard(pid)
    for pid in watched:
        kill_group(pid)


if __name__ == "__main__":
    reap(sys.stdin.buffer)
