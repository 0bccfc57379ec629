"""Starts planning workers."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable
from dataclasses import dataclass

from circinus.api.settings import Settings
from circinus.deploy.profiling.channel import Channel, Garbled, start_program
from circinus.deploy.profiling.reaper import kill_group
from circinus.deploy.workers.process import own_environment

_MODULE = "circinus.api.control.planning_worker"


@dataclass(frozen=True, slots=True)
class StartedPlanner:
    """A `PlanningProcess`, at the other end of a channel."""

    process: subprocess.Popen[bytes]
    channel: Channel

    def ended(self) -> int | None:
        """See `PlanningProcess`, as all that follow."""
        return self.process.poll()

    def beats(self) -> list[str]:
        """See there."""
        beats: list[str] = []
        with contextlib.suppress(EOFError, OSError):  # none is there yet, or it has ended
            while True:
                try:
                    beats.append(self.channel.receive(0.0).decode())
                except (Garbled, UnicodeDecodeError) as error:
                    return [f"the planning worker sent no beat: {error}"]
        return beats

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
        self.channel.close()
        if self.process.stdin is not None:
            self.process.stdin.close()


def spawn_with(settings: Settings) -> Callable[[str], StartedPlanner]:
    """Return what starts a planning worker of a name, without the service's token.

    It ends with the thread that starts it.
    """
    # It listens nowhere, and without a token a service may only listen on loopback.
    document = settings.model_copy(update={"token": None, "host": "127.0.0.1"}).model_dump_json()

    def spawn(worker: str) -> StartedPlanner:
        request = {"settings": document, "worker": worker}
        return StartedPlanner(*start_program(_MODULE, request, own_environment()))

    return spawn
