"""Child processes that leave nothing behind: they end with whoever started them."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

MARK = "CIRCINUS_TEST_CLUSTER"
"""Environment variable of every process of a cluster: its folder."""
_POLL_S = 0.05
_PORTS = range(16_000, 32_000)


class NotReady(RuntimeError):
    """Something did not come up, and what its log says last."""


@dataclass(slots=True, kw_only=True)
class Processes:
    """Named programs with a log each.

    Attributes:
        folder: For logs; also marks the processes.
    """

    folder: Path
    _running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(
        self,
        name: str,
        command: Iterable[str | Path],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Start a program; it is killed when the thread that called this ends."""
        words = ["setpriv", "--pdeathsig", "KILL", "--", *map(str, command)]
        with self.log(name).open("ab") as log:
            self._running[name] = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **(environment or {}), MARK: str(self.folder)},
                start_new_session=True,
            )

    def log(self, name: str) -> Path:
        """Return the log of a program."""
        return self.folder / f"{name}.log"

    def pid(self, name: str) -> int:
        """Return the process of a program."""
        return self._running[name].pid

    def pids(self) -> list[int]:
        """Return the processes of all programs."""
        return [process.pid for process in self._running.values()]

    def wait_until(
        self, ready: Callable[[], bool], name: str, what: str, *, timeout_s: float
    ) -> None:
        """Wait until `ready`; a program that ends meanwhile is not waited for.

        Raises:
            NotReady: If it does not become so.
        """
        end = time.monotonic() + timeout_s
        while not ready():
            code = self._running[name].poll()
            if code is not None:
                raise NotReady(f"{name} ended with code {code}.\n{self._tail(name)}")
            if time.monotonic() > end:
                raise NotReady(f"{what} within {timeout_s:g} s is not so.\n{self._tail(name)}")
            time.sleep(_POLL_S)

    def stop(self, name: str, *, grace_s: float) -> None:
        """End a program: asked first, killed after the grace. Gone already is fine."""
        process = self._running.pop(name, None)
        if process is None:
            return
        if grace_s > 0 and process.poll() is None:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(grace_s)
        if process.poll() is None:
            process.kill()
        process.wait()

    def stop_all(self, *, grace_s: float) -> None:
        """End all programs, the last one started first."""
        for name in reversed(list(self._running)):
            self.stop(name, grace_s=grace_s)

    def _tail(self, name: str) -> str:
        return "\n".join(self.log(name).read_text(errors="replace").splitlines()[-15:])


def free_ports(count: int) -> list[int]:
    """Return ports that nobody listens on, below those that the kernel gives to connections."""
    found: set[int] = set()
    while len(found) < count:
        port = secrets.choice(_PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            found.add(port)
    return list(found)


def kill_marked(folder: Path) -> list[int]:
    """Kill what a killed cluster left behind: every process that bears its folder's mark."""
    mark = f"{MARK}={folder}".encode()
    others = [
        e for e in Path("/proc").iterdir() if e.name.isdigit() and e.name != str(os.getpid())
    ]
    found = [int(entry.name) for entry in others if mark in _environment(entry)]
    for pid in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return found


def _environment(entry: Path) -> list[bytes]:
    try:
        return (entry / "environ").read_bytes().split(b"\0")
    except OSError:
        return []
