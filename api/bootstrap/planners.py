"""Starts planning workers."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass

from circinus.api.settings import Settings
from circinus.deploy.profiling.channel import Garbled
from circinus.deploy.profiling.isolated import Child, start_program
from circinus.deploy.workers.process import own_environment

_MODULE = "circinus.api.control.planning_worker"


@dataclass(frozen=True, slots=True)
class StartedPlanner:
    """A `PlanningProcess` in a child."""

    child: Child

    def beats(self) -> list[str]:
        """See `PlanningProcess`, as all that follow."""
        beats: list[str] = []
        with contextlib.suppress(EOFError, OSError):  # none is there yet, or it has ended
            while True:
                try:
                    beats.append(self.child.channel.receive(0.0).decode())
                except (Garbled, UnicodeDecodeError) as error:
                    return [f"the planning worker sent no beat: {error}"]
        return beats

    def end(self) -> None:
        """See there."""
        if not self.child.has_ended():  # else its number may be another process' by now
            os.kill(self.child.pid, signal.SIGTERM)

    def kill(self) -> None:
        """See there."""
        self.child.kill()

    def wait(self, timeout_s: float | None) -> int | None:
        """See there."""
        return self.child.wait(timeout_s)

    def release(self) -> None:
        """See there."""
        self.child.channel.close()


def spawn_with(settings: Settings) -> Callable[[str], StartedPlanner]:
    """Return what starts a planning worker of a name, without the service's token.

    It ends with the thread that starts it.
    """
    # It listens nowhere, and without a token a service may only listen on loopback.
    document = settings.model_copy(update={"token": None, "host": "127.0.0.1"}).model_dump_json()

    def spawn(worker: str) -> StartedPlanner:
        request = {"settings": document, "worker": worker}
        return StartedPlanner(start_program(_MODULE, request, own_environment()))

    return spawn
