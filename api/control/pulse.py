"""How a planning worker tells its supervisor that it goes on, without the database.

It beats from a thread of its own, so that a process which stands still, or never lets that thread
run, falls silent. What blocks and lets it run would beat for ever: so a query whose time is over,
or that should have been cancelled long ago, is told as a complaint, upon which the supervisor
replaces the worker.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import inf
from threading import Event, Lock, Thread
from typing import Protocol

from circinus.api.event_log import trouble
from circinus.pipelines.clock import Clock

_LONGEST_S = 1.0
_BEATS = 10
"""In the time after which who is silent is taken for dead."""

_LOG = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class Pulse:
    """The worker's side."""

    send: Callable[[str], None]  # a beat: a complaint, or nothing; OSError: nobody listens
    clock: Clock
    lease_s: float = inf  # of silence, after which this process is replaced
    grace_s: float = inf  # that planning may go on when its time is over
    _overdue_at: float = field(default=inf, init=False)
    _complaint: str = field(default="", init=False)
    _waits: bool = field(default=False, init=False)  # for the database
    _plans: bool = field(default=False, init=False)
    _lock: Lock = field(default_factory=Lock, init=False, repr=False)

    def start(self) -> None:
        """Beat until the supervisor is gone, and end this process then."""
        Thread(target=self._beat_on, name="pulse", daemon=True).start()

    @contextlib.contextmanager
    def planning(self, response_s: float | None) -> Iterator[None]:
        """Complain if the block is not left within the time for an answer and some grace."""
        with self._lock:
            self._complaint = f"planning went on {self.grace_s:g} s beyond limits.response_s"
            self._overdue_at = self._after(inf if response_s is None else response_s)
            self._plans = True
        try:
            yield
        finally:
            with self._lock:
                self._overdue_at, self._plans = inf, False

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Complain of nothing in the block: what waits for the database is not to be replaced."""
        since, self._waits = self.clock.now(), True
        try:
            yield
        finally:
            self._overdue_at += self.clock.now() - since
            self._waits = False

    def cancelled(self) -> None:
        """Hear that what is planned should end: it has the grace for that.

        Nothing, once planning has ended: the last beat of the heart hears of it after that.
        """
        with self._lock:
            if self._plans and self._after(0.0) < self._overdue_at:
                told = f"planning went on {self.grace_s:g} s after it was to be cancelled"
                self._complaint, self._overdue_at = told, self._after(0.0)

    def beat(self) -> None:
        """Beat once."""
        overdue = not self._waits and self.clock.now() > self._overdue_at
        self.send(self._complaint if overdue else "")

    def _after(self, seconds: float) -> float:
        return self.clock.now() + seconds + self.grace_s

    def _beat_on(self) -> None:
        over, every_s = Event(), min(_LONGEST_S, self.lease_s / _BEATS)
        try:
            self.beat()
            while not over.wait(every_s):
                self.beat()
        except OSError as error:
            trouble(_LOG, "worker.left_alone", cause=str(error))  # the service ended
            os._exit(1)


class PlanningProcess(Protocol):
    """The supervisor's side: a planning worker."""

    def ended(self) -> int | None:
        """Return its exit code, minus a signal's number; None: it runs."""

    def beats(self) -> list[str]:
        """Return what it sent since it was asked last: complaints, empty where it has none."""

    def end(self) -> None:
        """Ask it to end."""

    def kill(self) -> None:
        """End it now, with what it started."""

    def wait(self, timeout_s: float | None) -> None:
        """Return when it ended, or the time is over; None: it is waited for."""

    def release(self) -> None:
        """Let go of it, as it has ended."""
