"""Keeps the planning workers running: starts them anew when they die, and frees their queries."""

from __future__ import annotations

import atexit
import logging
import multiprocessing
import secrets
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from threading import Event, Thread

from circinus.api.control.planning_worker import run_worker
from circinus.api.event_log import event, trouble
from circinus.api.settings import Settings
from circinus.api.use_cases.parts import ServiceParts

TICK_S = 0.1
_SHORTEST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 10.0
_GRACE_S = 2.0

_LOG = logging.getLogger(__name__)


Spawn = Callable[[str], BaseProcess]
"""Starts a worker of a name."""


def spawn_with(settings: Settings) -> Spawn:
    """Give what starts planning workers with these settings, without the service's token."""
    told = settings.model_copy(update={"token": None})

    def spawn(worker: str) -> BaseProcess:
        # Not a daemon: those may have no processes of their own, and operators run in some.
        process = multiprocessing.get_context("spawn").Process(
            target=run_worker, args=(told, worker), name=worker, daemon=False
        )
        process.start()
        return process

    return spawn


@dataclass(slots=True)
class _Seat:
    """A place for one worker: who sits there, and when the next one may."""

    worker: str = ""
    process: BaseProcess | None = None
    deaths: int = 0
    not_before: float = 0.0


@dataclass(slots=True, kw_only=True)
class PlanningSupervisor:
    """Keeps a number of workers running, from a thread of its own."""

    parts: ServiceParts
    spawn: Spawn
    _seats: list[_Seat] = field(default_factory=list, init=False)
    _over: Event = field(default_factory=Event, init=False)
    _thread: Thread | None = field(default=None, init=False)

    def start(self) -> None:
        """Start the workers and keep them running until `stop`."""
        self._seats = [_Seat() for _ in range(self.parts.settings.planning_workers)]
        self._thread = Thread(target=self._keep_on, name="supervisor", daemon=True)
        self._thread.start()
        atexit.register(self.stop)  # before the interpreter waits for them

    def stop(self) -> None:
        """End the workers and return what they planned to the queue; once is enough."""
        atexit.unregister(self.stop)
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        seated = [(seat.worker, seat.process) for seat in self._seats if seat.process is not None]
        for _, process in seated:
            process.terminate()
        for worker, process in seated:
            process.join(_GRACE_S)
            if process.exitcode is None:
                process.kill()
                process.join()
            freed = self.parts.store.queue.release(worker, at=self.parts.clock.timestamp())
            event(_LOG, "worker.stopped", worker=worker, query_ids=list(freed))

    def tick(self) -> None:
        """Look after every worker once."""
        for seat in self._seats:
            if seat.process is not None and seat.process.exitcode is not None:
                self._bury(seat, seat.process)
            if seat.process is None and self.parts.clock.now() >= seat.not_before:
                seat.worker = f"planner-{secrets.token_hex(4)}"
                seat.process = self.spawn(seat.worker)
        now = self.parts.clock.timestamp()
        lease_s = self.parts.settings.lease_s
        for query_id in self.parts.store.queue.requeue_silent(since=now - lease_s, at=now):
            trouble(_LOG, "worker.silent", query_id=query_id, lease_s=lease_s)

    def _keep_on(self) -> None:
        # The workers are started from this thread, and the kernel ends them with it.
        while not self._over.is_set():
            try:
                self.tick()
            except Exception as error:  # noqa: BLE001 - the thread's edge: the next tick goes on
                trouble(_LOG, "supervisor.tick_failed", error=error)
            self._over.wait(TICK_S)

    def _bury(self, seat: _Seat, process: BaseProcess) -> None:
        code = process.exitcode or 0
        ending = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        cause = f"the planning worker ended with {ending}"
        at = self.parts.clock.timestamp()
        limit = self.parts.settings.crash_limit
        freed = self.parts.store.queue.crashed(seat.worker, at=at, limit=limit, cause=cause)
        trouble(_LOG, "worker.died", worker=seat.worker, cause=cause, query_ids=list(freed))
        # A worker that dies over a query may be replaced at once; one that cannot start may not.
        seat.deaths = 0 if freed else seat.deaths + 1
        pause = min(_SHORTEST_PAUSE_S * 2**seat.deaths, _LONGEST_PAUSE_S)
        seat.process = None
        seat.not_before = self.parts.clock.now() + pause
