"""Child processes for a user's code, and for what would hold this process up.

Whatever a child does, it ends in time, together with the programs that it called, and it outlives
the process that started it by no more than a moment.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self, cast

from circinus.deploy.profiling.channel import Channel, Garbled
from circinus.deploy.profiling.reaper import Reaper, kill_group
from circinus.deploy.workers.process import operator_environment, without_secrets
from circinus.pipelines.errors import InvalidInput, Stopped
from circinus.pipelines.model.payload import decode

_END_S = 5.0
_LOOK_S = 0.1  # between two looks at whether an answer is wanted any more


class ChildFailed(Exception):
    """A child could not be started, ended before it answered, or sent no answer."""


@dataclass(slots=True)
class Child:
    """A process that this one started, which leads a process group, and the channel to it."""

    pid: int
    channel: Channel
    wait: Callable[[float | None], int | None]  # at most so many seconds, for its exit code

    def has_ended(self) -> bool:
        """Return whether its exit code is known."""
        return self.wait(0.0) is not None

    def end(self) -> None:
        """Kill it, and the programs that it called."""
        kill_group(self.pid)
        self.wait(_END_S)
        self.channel.close()


def run_isolated(
    child: Child, timeout_s: float, cancelled: Callable[[], bool] = lambda: False
) -> dict[str, Any]:
    """Return the one answer of a child, and end the child.

    TimeoutError if there is none in time, Stopped once `cancelled` says so, ChildFailed if it
    ended or sent something else.
    """
    try:
        for _ in range(round(timeout_s / _LOOK_S)):
            try:
                data = child.channel.receive(_LOOK_S, child.has_ended)
            except TimeoutError:
                if cancelled():
                    raise Stopped("cancelled") from None
                continue
            return cast("dict[str, Any]", decode(data))
    except (EOFError, OSError) as error:
        code = child.wait(_END_S)
        raise ChildFailed(f"its process ended with exit code {code}") from error
    except (Garbled, InvalidInput) as error:
        raise ChildFailed(f"its process gave no answer ({error})") from error
    finally:
        child.end()
    raise TimeoutError(f"it took longer than {timeout_s:g} s")


class Forker:
    """Starts children as copies of this process, which have all that it has loaded.

    Threads and locks that it holds are not copied whole, so that a child may hang in them. A
    context manager: what still runs at its end is killed.
    """

    def __init__(self) -> None:
        self._reaper = Reaper(operator_environment())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._reaper.close()

    def start(self, serve: Callable[[Channel], None]) -> Child:
        """Return a child that serves the other end of its channel, without secrets."""
        ours, theirs = Channel.pair()

        def run() -> None:
            ours.close()
            self._reaper.watch(os.getpid())
            self._reaper.forget()
            os.setpgid(0, 0)  # programs that are called end with this process
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
            with without_secrets():
                serve(Channel(theirs))

        process = multiprocessing.get_context("fork").Process(target=run, daemon=True)
        with _interrupts_blocked():  # until it leads a group of its own
            process.start()
        theirs.close()

        def wait(timeout_s: float | None = None) -> int | None:
            process.join(timeout_s)
            if process.exitcode is not None:
                self._reaper.release(process.pid or 0)
            return process.exitcode

        return Child(process.pid or 0, ours, wait)


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
