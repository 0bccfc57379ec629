"""Structured events: one JSON object per line on stderr, fields beside the event's name.

`event(log, "query.planned", query_id=..., plans=3)`; never sentences with numbers pasted in.
"""

from __future__ import annotations

import json
import logging
import sys
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import inf
from threading import Lock

from circinus.pipelines.backoff import Backoff
from circinus.pipelines.clock import Clock, SystemClock

_PAUSES = Backoff(10.0, 600.0)
_PEACE_S = 60.0  # after which a trouble is a new one
_FIELDS = "circinus_fields"


class JsonLines(logging.Formatter):
    """Formats a record as one JSON object: time, level, logger, event, then its fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, without its end."""
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
        } | getattr(record, _FIELDS, {})
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=False)


def event(log: logging.Logger, name: str, /, **fields: object) -> None:
    """Log an expected event."""
    log.info(name, extra={_FIELDS: fields})


def trouble(
    log: logging.Logger, name: str, /, *, error: BaseException | None = None, **fields: object
) -> None:
    """Log an event that needs attention, with the traceback of its error if it has one."""
    log.warning(name, extra={_FIELDS: fields}, exc_info=error)


@dataclass(slots=True, eq=False)
class Outage:
    """Logs a trouble that lasts: at once, after pauses that double, and when it is over.

    Callers report it each time they meet it. Safe to share between threads.
    """

    log: logging.Logger
    name: str  # of the event; when it is over, NAME_over
    clock: Clock = field(default_factory=SystemClock)
    _since: float | None = field(default=None, init=False)
    _logged: bool = field(default=False, init=False)
    _over_at: float = field(default=-inf, init=False)
    _next_at: float = field(default=-inf, init=False)
    _times: int = field(default=0, init=False)
    _lock: Lock = field(default_factory=Lock, init=False)

    def lasts(self, *, cause: str) -> None:
        """Record that the trouble is there; log it now and then."""
        with self._lock:
            now = self.clock.now()
            if self._since is None:
                self._since, self._logged = now, False
                if now - self._over_at > _PEACE_S:  # an intermittent trouble is logged ever less
                    self._next_at, self._times = now, 0
            lasted_s, due = now - self._since, now >= self._next_at
            if due:
                self._logged = True
                self._times += 1
                self._next_at = now + _PAUSES.pause_s(self._times)
        if due:
            trouble(self.log, self.name, cause=cause, lasted_s=round(lasted_s, 3))

    def over(self) -> None:
        """Record that the trouble is over; log that if it was logged before."""
        if self._since is None:
            return
        with self._lock:
            since, self._since = self._since, None
            self._over_at = now = self.clock.now()
        if self._logged and since is not None:
            event(self.log, f"{self.name}_over", lasted_s=round(now - since, 3))


def start_event_log(level: str) -> None:
    """Send the events of this process to stderr, from `level` up."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for noisy in ("alembic", "uvicorn.access", "httpx", "sqlalchemy"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
