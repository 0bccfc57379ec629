"""How a planning worker signals its supervisor that it lives, without the database.

It beats from a thread of its own, so that a process which hangs, or never lets that thread run,
falls silent. A blocked search beside a running thread would beat for ever. So the worker sends a
complaint when a query's time is over or it should have been cancelled long ago. The supervisor
then replaces the worker.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import inf
from threading import Event, Lock, Thread
from typing import Protocol

from circinus.api.event_log import trouble
from circinus.api.schemas.events import EventKind, progress_data
from circinus.api.schemas.progress import trial_view
from circinus.api.store.failures import DatabaseFailed
from circinus.api.store.records import NewEvent, to_document
from circinus.api.store.store import Store
from circinus.pipelines.clock import Clock
from circinus.pipelines.model.configuration import Configuration
from circinus.planner.search.result import PlanningProgress, Trial

TICK_S = 0.25
"""Between two looks at whether there is progress to store or a wish to cancel."""
EVENT_S = 1.0
"""Between two events with the progress of planning."""
SILENCE_S = 2.0
"""Without news of a search, after which its last progress is stored again."""
_LONGEST_S = 1.0
_BEATS = 10
"""In the time after which who is silent is taken for dead."""

_LOG = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class Pulse:
    """The worker's side."""

    send: Callable[[str], None]  # a beat: a complaint, or nothing; OSError: the supervisor is gone
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
        """Suppress complaints in the block: a wait for the database is no reason to replace it."""
        since, self._waits = self.clock.now(), True
        try:
            yield
        finally:
            self._overdue_at += self.clock.now() - since
            self._waits = False

    def cancelled(self) -> None:
        """Allow planning that was cancelled the grace to end in.

        Has no effect once planning has ended: the last beat may learn of cancelling after that.
        """
        with self._lock:
            if self._plans and self._after(0.0) < self._overdue_at:
                complaint = f"planning went on {self.grace_s:g} s after it was to be cancelled"
                self._complaint, self._overdue_at = complaint, self._after(0.0)

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

    def beats(self) -> list[str]:
        """Return the beats since the last call: complaints, empty where there is none."""

    def end(self) -> None:
        """Send it the signal to end."""

    def kill(self) -> None:
        """End it now, with what it started."""

    def wait(self, timeout_s: float | None) -> int | None:
        """Return its exit code, minus a signal's number, once it ended; None: it still runs.

        Without a time-out wait for it.
        """

    def release(self) -> None:
        """Free what belongs to it, once it has ended."""


@dataclass(slots=True)
class ProgressReporter:
    """Stores how far planning is, from a thread of its own, and learns of cancelling.

    While the search reports nothing, because operators hang, say, its last progress is stored
    again with the time since. It is the `Observer` of the search: the planning thread never waits
    for the database here. Events have each configuration measured since the last beat, and every
    second the progress of planning.
    """

    store: Store
    clock: Clock
    query_id: str
    worker: str
    stopping: Callable[[], None] = lambda: None  # called when it learns of cancelling
    # at most one, not stored yet
    _latest: deque[PlanningProgress] = field(default_factory=lambda: deque(maxlen=1), init=False)
    # of the search, not looked at yet
    _measured: deque[Trial] = field(default_factory=deque, init=False)
    # likewise, not stored yet: the newest of each configuration
    _trials: dict[Configuration, Trial] = field(default_factory=dict, init=False)
    _event_s: float = field(default=-inf, init=False)  # of the last event with progress
    _last: PlanningProgress | None = field(default=None, init=False)
    _last_s: float = field(default=0.0, init=False)  # when it arrived
    _again_s: float = field(default=0.0, init=False)  # when it was stored last
    _stop_planning: Event = field(default_factory=Event, init=False)
    _over: Event = field(default_factory=Event, init=False)

    @contextmanager
    def beating(self) -> Iterator[None]:
        """Beat until the context is left, the last progress stored."""
        thread = Thread(target=self._beat_on, name="heart", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def progress(self, progress: PlanningProgress) -> None:
        """Record the progress of the search; the next beat stores it."""
        self._measured.extend(progress.trials)
        self._latest.append(progress)

    def cancelled(self) -> bool:
        """Return whether the search should stop."""
        return self._stop_planning.is_set()

    @property
    def has_news(self) -> bool:
        """Return whether anything is not stored yet."""
        return bool(self._latest or self._measured or self._trials)

    def beat(self) -> None:
        """Store the news since the last beat; learn whether to stop."""
        news, at, now = self._news(), self.clock.timestamp(), self.clock.now()
        while self._measured:
            trial = self._measured.popleft()
            self._trials[trial.configuration] = trial
        events = [_measured_event(self.query_id, at, trial) for trial in self._trials.values()]
        tells = news is not None and (now - self._event_s >= EVENT_S or self._over.is_set())
        if news is not None and tells:
            events.append(_progress_event(self.query_id, at, news))
        progress = None if news is None else to_document(replace(news, trials=()))
        beat = self.store.queue.beat
        try:
            stop = beat(self.query_id, self.worker, at=at, progress=progress, events=events)
        except DatabaseFailed:
            if news is not None and not self._latest:
                self._latest.append(news)
            raise
        self._trials.clear()
        self._event_s = now if tells else self._event_s
        if stop:
            self._stop_planning.set()
            self.stopping()

    def _news(self) -> PlanningProgress | None:
        """Return what is to be stored; None: nothing is new."""
        now, last = self.clock.now(), self._last
        if self._latest:
            self._last = last = self._latest.pop()
            self._last_s = self._again_s = now
            return last
        if last is None or now - self._again_s < SILENCE_S:
            return None
        self._again_s, since_s = now, now - self._last_s
        left_s = None if last.time_left_s is None else max(last.time_left_s - since_s, 0.0)
        return replace(last, elapsed_s=last.elapsed_s + since_s, time_left_s=left_s)

    def _beat_on(self) -> None:
        over = False
        while not over:
            over = self._over.wait(TICK_S)
            try:
                self.beat()
            except DatabaseFailed:  # the store logs it
                continue
            except Exception as error:  # noqa: BLE001 - the next beat makes up for it
                trouble(_LOG, "worker.beat_missed", query_id=self.query_id, error=error)


def _progress_event(query_id: str, at: float, progress: PlanningProgress) -> NewEvent:
    best = progress.best
    so_far = "no plan yet" if best is None else f"best {best.cost_usd_per_hour:.4g} USD/h"
    return NewEvent(
        kind=EventKind.PROGRESS,
        at=at,
        query_id=query_id,
        words=f"{query_id} is {progress.phase}: {progress.measured} configurations, {so_far}",
        data=progress_data(progress),
    )


def _measured_event(query_id: str, at: float, trial: Trial) -> NewEvent:
    return NewEvent(
        kind=EventKind.MEASURED,
        at=at,
        query_id=query_id,
        words=f"{query_id} measured a configuration on {trial.inputs} inputs: {trial.state}",
        data=trial_view(trial).model_dump(mode="json"),
    )
