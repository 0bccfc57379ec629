"""Supervises the planning workers: restarts them when they die, and frees their queries."""

from __future__ import annotations

import atexit
import logging
import secrets
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from threading import Event, Thread

from circinus.api.control.pulse import PlanningProcess
from circinus.api.event_log import event, trouble
from circinus.api.store.failures import DatabaseFailed, DatabaseOwned
from circinus.api.use_cases.parts import ServiceParts
from circinus.pipelines.backoff import Backoff

TICK_S = 0.1
COMES_UP_S = 120.0
"""Most that a worker may take until its first beat: it imports pipelines, perhaps large ones."""
_RESTARTS = Backoff(0.2, 10.0)
_GRACE_S = 2.0
_LONGEST_LOOK_S = 1.0
"""Between two looks, that counts as silence: beats in between may be lost."""

SILENT_WORKER_S = 2.0
"""A worker of an earlier service that still lives beats within that, many times over."""
_OWNED_EVERY_S = 1.0

_LOG = logging.getLogger(__name__)


@dataclass(slots=True)
class _Seat:
    """A place for one worker: who sits there, and when the next one may."""

    worker: str = ""
    process: PlanningProcess | None = None
    silent_s: float = 0.0  # since its last beat, as far as this process looked
    is_up: bool = False  # whether it ever beat
    cause: str = ""  # for which it was killed; empty: it was not
    deaths: int = 0
    not_before: float = 0.0


@dataclass(slots=True, kw_only=True)
class PlanningSupervisor:
    """Runs a number of workers, from a thread of its own."""

    parts: ServiceParts
    spawn: Callable[[str], PlanningProcess]  # starts a worker of a name
    _seats: list[_Seat] = field(default_factory=list, init=False)
    _over: Event = field(default_factory=Event, init=False)
    _thread: Thread | None = field(default=None, init=False)
    _looked_at: float = field(init=False)
    _began_at: float = field(init=False)  # on the clock of beats
    _silent_freed: bool = field(default=False, init=False)  # what was silent at the start
    _owned_at: float = field(default=-inf, init=False)

    def __post_init__(self) -> None:
        self._looked_at = self.parts.clock.now()
        self._began_at = self.parts.clock.timestamp()

    def start(self) -> None:
        """Start the workers and restart them as needed until `stop`."""
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
            process.end()
        for worker, process in seated:
            if process.wait(_GRACE_S) is None:
                process.kill()
                process.wait(None)
            process.release()
            try:
                freed = self.parts.store.queue.release(worker, at=self.parts.clock.timestamp())
            except DatabaseFailed:
                freed = ()  # the next service finds it silent
            event(_LOG, "worker.stopped", worker=worker, query_ids=list(freed))

    def tick(self) -> None:
        """Check every worker once, and free queries without a worker.

        DatabaseFailed if a worker's death could not be stored; it will be later. Workers live on
        without the database, unless another service has it.
        """
        clock = self.parts.clock
        since_s = min(
            clock.now() - self._looked_at, _LONGEST_LOOK_S
        )  # after a late look, silence proves nothing
        self._looked_at = clock.now()
        self._require_owned()
        failure: DatabaseFailed | None = None
        for seat in self._seats:
            try:
                self._look_after(seat, since_s)
            except DatabaseFailed as error:
                failure = error
        if failure is not None:
            raise failure
        self._free_silent()

    def _require_owned(self) -> None:
        """Raise DatabaseOwned, the workers ended, if another service has the database by now."""
        now = self.parts.clock.now()
        if now - self._owned_at < _OWNED_EVERY_S:
            return
        try:
            self.parts.require_owned()
        except DatabaseOwned:
            for process in (seat.process for seat in self._seats if seat.process is not None):
                process.kill()
            raise
        except DatabaseFailed:
            pass
        self._owned_at = now

    def _look_after(self, seat: _Seat, since_s: float) -> None:
        if seat.process is not None:
            self._listen(seat, seat.process, since_s)
        if seat.process is not None and (code := seat.process.wait(0.0)) is not None:
            self._bury(seat, code)
            seat.process.release()
            seat.process = None
        if seat.process is None and self.parts.clock.now() >= seat.not_before:
            seat.worker = f"planner-{secrets.token_hex(4)}"
            seat.process = self.spawn(seat.worker)
            seat.silent_s, seat.is_up, seat.cause = 0.0, False, ""

    def _listen(self, seat: _Seat, process: PlanningProcess, since_s: float) -> None:
        """Kill a worker that fell silent, or that complains."""
        beats = process.beats()
        seat.silent_s = 0.0 if beats else seat.silent_s + since_s
        seat.is_up = seat.is_up or bool(beats)
        patience_s = self.parts.settings.lease_s if seat.is_up else COMES_UP_S
        if seat.silent_s > patience_s:
            what = "stood still" if seat.is_up else "did not come up"
            seat.cause = f"the planning worker {what} for {patience_s:g} s"
        elif complaints := [beat for beat in beats if beat]:
            seat.cause = complaints[-1]
        if seat.cause:
            process.kill()

    def _free_silent(self) -> None:
        """Requeue queries of silent workers of other services; ours beat without the store.

        Workers end with their service, so those of an earlier one fall silent soon. One that
        lives on beats, and holds its claim.
        """
        now, lease_s = self.parts.clock.timestamp(), self.parts.settings.lease_s
        since, finds = now - lease_s, now - self._began_at > SILENT_WORKER_S
        if finds and not self._silent_freed:
            since = max(since, self._began_at)
        seated = [seat.worker for seat in self._seats if seat.process is not None]
        queue = self.parts.store.queue
        for query_id in queue.requeue_silent(since=since, at=now, spared=seated):
            trouble(_LOG, "worker.silent", query_id=query_id, since_s=now - since)
        self._silent_freed = self._silent_freed or finds

    def _keep_on(self) -> None:
        # The workers are started from this thread, and the kernel ends them with it.
        while not self._over.is_set():
            try:
                self.tick()
            except DatabaseFailed:  # the store logs it
                pass
            except Exception as error:  # noqa: BLE001 - the thread's edge: the next tick goes on
                trouble(_LOG, "supervisor.tick_failed", error=error)
            self._over.wait(TICK_S)

    def _bury(self, seat: _Seat, code: int) -> None:
        ending = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        cause = seat.cause or f"the planning worker ended with {ending}"
        at = self.parts.clock.timestamp()
        limit = self.parts.settings.crash_limit
        freed = self.parts.store.queue.crashed(seat.worker, at=at, limit=limit, cause=cause)
        trouble(_LOG, "worker.died", worker=seat.worker, cause=cause, query_ids=list(freed))
        # A worker that dies over a query may be replaced at once; one that cannot start may not.
        seat.deaths = 0 if freed else seat.deaths + 1
        seat.not_before = self.parts.clock.now() + _RESTARTS.pause_s(seat.deaths + 1)
