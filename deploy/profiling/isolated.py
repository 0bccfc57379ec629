"""Child processes for a user's code, and for what would hold this process up.

Whatever a child does, it ends in time, together with the programs that it called, and it outlives
the process that started it by no more than a moment. A child is a copy of this process (`Forker`),
a copy of a warm one (`deploy.profiling.warm`) or a fresh interpreter (`start_program`).
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Self, cast

from circinus.deploy.profiling.channel import Channel, Garbled
from circinus.deploy.profiling.reaper import Reaper, kill_group
from circinus.deploy.workers.process import operator_environment, without_secrets
from circinus.deploy.workers.watched import watched
from circinus.pipelines.errors import InvalidInput, Stopped, Violation
from circinus.pipelines.model.payload import Payload, decode, encode

_END_S = 5.0
_LOOK_S = 0.1  # between two looks at whether an answer is wanted any more


class ChildFailed(Exception):
    """A child could not be started, ended before it answered, or sent no answer."""


@dataclass(slots=True)
class Child:
    """A process that this one started, which leads a process group, and the channel to it.

    A context manager: it ends the child.
    """

    pid: int
    channel: Channel
    wait: Callable[[float | None], int | None]  # at most so many seconds, for its exit code

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.end()

    def has_ended(self) -> bool:
        """Return whether its exit code is known."""
        return self.wait(0.0) is not None

    def kill(self) -> None:
        """Kill it, and the programs that it called."""
        kill_group(self.pid)

    def end(self) -> None:
        """Kill it with the programs that it called, and close the channel."""
        self.kill()
        self.wait(_END_S)
        self.channel.close()

    def answer(
        self, timeout_s: float | None = None, cancelled: Callable[[], bool] = lambda: False
    ) -> dict[str, Any]:
        """Return the next answer; without a time-out wait for it.

        InvalidInput if the answer is that, see `answering`. TimeoutError if there is none in time,
        Stopped once `cancelled` is true, ChildFailed if the child ended or sent something else.
        """
        looks: Iterable[None] = repeat(None)
        if timeout_s is not None:
            looks = repeat(None, round(timeout_s / _LOOK_S))
        for _ in looks:
            if cancelled():
                raise Stopped("cancelled")
            try:
                return self._received()
            except TimeoutError:
                continue
        raise TimeoutError(f"it took longer than {timeout_s:g} s")

    def _received(self) -> dict[str, Any]:
        try:
            data = self.channel.receive(_LOOK_S, self.has_ended)
            answer = cast("dict[str, Any]", decode(data))
            violations = [Violation(*each) for each in answer.get("violations", ())]
        except TimeoutError:
            raise
        except (EOFError, OSError) as error:
            code = self.wait(_END_S)
            raise ChildFailed(f"its process ended with exit code {code}") from error
        except (Garbled, InvalidInput, AttributeError, TypeError) as error:
            raise ChildFailed(f"its process gave no answer ({error})") from error
        if violations:
            raise InvalidInput(violations)
        return answer


def run_isolated(
    child: Child, timeout_s: float, cancelled: Callable[[], bool] = lambda: False
) -> dict[str, Any]:
    """Return the one answer of a child, and end the child; errors as `Child.answer`."""
    with child:
        return child.answer(timeout_s, cancelled)


def answering(channel: Channel, make: Callable[[], dict[str, Payload]]) -> None:
    """Send, in a child, an answer once it is made, or the violations that making it raised."""
    try:
        answer = make()
    except InvalidInput as error:
        answer = {"violations": [[one.field, one.rule, one.value] for one in error.violations]}
    channel.send(encode(answer))


def start_program(
    module: str,
    request: Mapping[str, Payload],
    environment: Mapping[str, str],
    files: Iterable[int] = (),
) -> Child:
    """Return a child that runs a module in a fresh interpreter; it has the descriptors `files`.

    It ends with the thread that calls this. The module is called with the channel's descriptor,
    see `first_request`. Not by `multiprocessing`: that would run the main module of this process
    there again, which in a user's script may plan in every worker, without end.
    """
    ours, theirs = Channel.pair()
    with theirs:
        process = subprocess.Popen(
            [*watched(module), str(theirs.fileno())],
            stdin=subprocess.PIPE,
            pass_fds=[theirs.fileno(), *files],
            process_group=0,  # programs that are called end with it
            env=environment,
        )
    with suppress(OSError):  # it has ended: who reads its answer learns of it
        ours.ask(encode({**request, "path": [*sys.path]}))

    def wait(timeout_s: float | None = None) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout_s)
        if process.returncode is not None and process.stdin is not None:
            process.stdin.close()
        return process.returncode

    return Child(process.pid, ours, wait)


def first_request(descriptor: str) -> tuple[Channel, dict[str, Any]]:
    """Return, in such a process, the channel and the request; adopt the starter's import path.

    SystemExit if the starter is gone.
    """
    channel = Channel.at(int(descriptor))
    request = opening_request(channel)
    sys.path[:] = request.pop("path")
    return channel, request


def opening_request(channel: Channel) -> dict[str, Any]:
    """Return the first request of the parent process; SystemExit if that is gone."""
    try:
        return cast("dict[str, Any]", decode(channel.requested()))
    except (EOFError, OSError) as error:
        raise SystemExit("the process that started this one is gone") from error


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
