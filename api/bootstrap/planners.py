"""Starts planning workers."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection

from circinus.api.settings import Settings
from circinus.deploy.profiling.fresh_process import started
from circinus.deploy.profiling.reaper import kill_group
from circinus.deploy.workers.settings import own_environment

_MODULE = "circinus.api.control.planning_worker"


@dataclass(frozen=True, slots=True)
class StartedPlanner:
    """A `PlanningProcess`, at the other end of a pipe."""

    process: subprocess.Popen[bytes]
    pipe: Connection

    def ended(self) -> int | None:
        """See `PlanningProcess`, as all that follow."""
        return self.process.poll()

    def beats(self) -> list[str]:
        """See there."""
        told: list[str] = []
        with contextlib.suppress(EOFError, OSError):  # it has ended
            while self.pipe.poll():
                told.append(self.pipe.recv_bytes().decode())
        return told

    def end(self) -> None:
        """See there."""
        self.process.terminate()

    def kill(self) -> None:
        """See there."""
        kill_group(self.process.pid)

    def wait(self, timeout_s: float | None) -> None:
        """See there."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout_s)

    def release(self) -> None:
        """See there."""
        self.pipe.close()
        if self.process.stdin is not None:
            self.process.stdin.close()


def spawn_with(settings: Settings) -> Callable[[str], StartedPlanner]:
    """Give what starts a planning worker of a name, without the service's token.

    It ends with the thread that starts it.
    """
    # It listens nowhere, and without a token a service may only listen on loopback.
    told = settings.model_copy(update={"token": None, "host": "127.0.0.1"}).model_dump_json()

    def spawn(worker: str) -> StartedPlanner:
        asked = {"settings": told, "worker": worker}
        return StartedPlanner(*started(_MODULE, asked, environment=own_environment()))

    return spawn
