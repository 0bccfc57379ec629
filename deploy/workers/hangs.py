"""Notices calls that run on although nobody waits for them any more, and will hardly end.

Health tells of them, so that whoever runs the worker replaces it. The one rule: a slow call is no
hang. It may run on for several times as long as the longest call that was answered.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import inf

import grpc
from grpc_health.v1 import health, health_pb2

from circinus.deploy.workers.proto.worker_pb2 import RunRequest
from circinus.deploy.workers.transport import CAUSE_KEY
from circinus.pipelines.clock import Clock

_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


@dataclass(frozen=True, slots=True, kw_only=True)
class CallPatience:
    """How long calls may run on."""

    left_s: float = 5.0  # after their caller left, `> 0`
    late_s: float = 10.0  # after their answer was due, though the caller waits, `> 0`
    # of either, times the seconds of the longest call that was answered, `> 0`
    times_longest: float = 5.0
    first_s: float = 60.0  # of either, before any was answered: a first call may load models

    def beyond(self, seconds: float) -> CallPatience:
        """Return the patience with calls that may take so many seconds by themselves."""
        return replace(
            self,
            left_s=self.left_s + seconds,
            late_s=self.late_s + seconds,
            first_s=self.first_s + seconds,
        )


@dataclass(slots=True, eq=False)
class _Call:
    operators: str
    began: float
    due: float
    left: float = inf  # when its caller left


@dataclass(slots=True, eq=False)
class CallWatch:
    """The calls that run in a worker. Safe to share between threads."""

    clock: Clock
    places: int  # calls that run at once: with one of them free, the worker serves
    patience: CallPatience = field(default_factory=CallPatience)
    _running: set[_Call] = field(default_factory=set, init=False)
    _longest_s: float | None = field(default=None, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    @contextmanager
    def running(
        self, request: RunRequest, due: float, context: grpc.ServicerContext
    ) -> Iterator[None]:
        """Watch a call whose answer is due then; one without operators says nothing."""
        if not request.operators:
            yield
            return
        call = _Call(", ".join(request.operators), self.clock.now(), due)

        def leave() -> None:
            call.left = self.clock.now()

        if not context.add_callback(leave):
            leave()
        with self._lock:
            self._running.add(call)
        try:
            yield
            with self._lock:
                # A first run loads what later ones have: how long it took is no measure for them.
                took_s = 0.0 if request.warm_up else self.clock.now() - call.began
                self._longest_s = max(took_s, self._longest_s or 0.0)
        finally:
            with self._lock:
                self._running.discard(call)

    def hang(self) -> str:
        """Return what hangs, in words; empty while a call may still end, or a place is free."""
        with self._lock:
            now, running = self.clock.now(), list(self._running)
            if len(running) < self.places or not all(self._hangs(call, now) for call in running):
                return ""
            oldest = min(running, key=lambda call: call.began)
        return f"{oldest.operators} ran for {now - oldest.began:.0f} s and did not end"

    def _hangs(self, call: _Call, now: float) -> bool:
        patience, longest_s = self.patience, self._longest_s
        if longest_s is None:
            left_s = late_s = patience.first_s
        else:
            most_s = patience.times_longest * longest_s
            left_s, late_s = max(patience.left_s, most_s), max(patience.late_s, most_s)
        return now > min(call.left + left_s, max(call.due, call.began) + late_s)


class WatchedHealth(health.HealthServicer):
    """Health that also says when calls hang, and which."""

    def __init__(self, watch: CallWatch) -> None:
        super().__init__()
        self._watch = watch

    def Check(
        self, request: health_pb2.HealthCheckRequest, context: grpc.ServicerContext
    ) -> health_pb2.HealthCheckResponse:
        """Return whether the worker serves."""
        answer: health_pb2.HealthCheckResponse = super().Check(request, context)
        if (hang := self._watch.hang()) and answer.status:
            context.set_trailing_metadata(((CAUSE_KEY, hang),))
            return health_pb2.HealthCheckResponse(status=_NOT_SERVING)
        return answer
