"""A stream of events that goes on where it broke off: the protocol, without the connection.

Server-sent events: `id`, `event` and `data` lines, a blank one after each event, comments in
between that say that the service is there. Whoever comes again says which event it saw last.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import inf
from typing import Any

import httpx
from pydantic import BaseModel, ValidationError

from circinus.api.client.calls import event_path
from circinus.api.client.exchange import Exchanges, problem_in
from circinus.api.schemas.events import EventView
from circinus.pipelines.errors import Unavailable

RESET = "reset"
"""Kind of what a reader is told before events that do not follow those that it saw."""
KEPT_ALIVE_S = 45.0
"""A service says something every 15 s: one that is silent for so long is gone."""
_CONNECT_S = 10.0
_LEAST_S = 0.01
_STREAM = "text/event-stream"
_EXACT_S = 1.0  # by which a reader's time may be over before it notices


class _Reset(BaseModel):
    after: int


@dataclass(slots=True, kw_only=True, eq=False)
class EventFeed:
    """What one reader of events has seen, and what it makes of lines and of their ends."""

    exchanges: Exchanges
    query_id: str | None  # whose events; None: all
    after: int  # serial of the last event that it saw
    ends: float | None = None  # on the clock: until when it reads; None: for good
    _failed: int = field(default=0, init=False)  # connections in a row that gave nothing
    _asked_s: float = field(default=0.0, init=False)  # pause that the service asked for
    _heard: float = field(init=False)  # when anything came last
    _opened: float = field(default=0.0, init=False)  # when it connected last
    _rest: bytes = field(default=b"", init=False)  # of a line whose end has not come
    _fields: dict[str, str] = field(default_factory=dict, init=False)  # of the event that comes

    def __post_init__(self) -> None:
        self._heard = self.exchanges.clock.now()

    @property
    def is_over(self) -> bool:
        """Whether its time is."""
        return self._left_s <= 0

    def connection(self) -> dict[str, Any]:
        """Return what to connect with, now."""
        self._opened = self.exchanges.clock.now()
        self._rest, self._fields = b"", {}
        left_s = min(KEPT_ALIVE_S, max(self._left_s, _LEAST_S))
        return {
            "method": "GET",
            "url": event_path(self.query_id),
            "headers": {"Accept": _STREAM, "Last-Event-ID": str(self.after)},
            "timeout": httpx.Timeout(left_s, connect=min(left_s, _CONNECT_S)),
        }

    def opens(self, response: httpx.Response) -> bool:
        """Return whether events come; if not, the body is to be read, and `refused` told of it."""
        media_type = response.headers.get("Content-Type", "").partition(";")[0]
        return response.is_success and media_type == _STREAM

    def refused(self, response: httpx.Response) -> None:
        """Take in an answer without events; raises what it means, unless it is only for now."""
        if response.is_success:
            reason = f"{self.exchanges.base_url} has no stream of events"
            raise Unavailable(reason, retry_after_s=1.0)
        error = problem_in(response)
        if not isinstance(error, Unavailable):
            raise error
        self._fail(error)
        self._asked_s = error.retry_after_s

    def lost(self, error: httpx.HTTPError) -> None:
        """Take in that a connection broke, or never was; Unavailable after too long a silence."""
        if not self.is_over:
            self._fail(self.exchanges.silent(error))

    def events_in(self, chunk: bytes) -> Iterator[EventView]:
        """Yield the events that more of a stream completes, those that are new."""
        self._failed, self._asked_s = 0, 0.0
        self._heard = self.exchanges.clock.now()
        # Lines end as the protocol says, not where `str.splitlines` would: texts hold U+2028.
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            if (event := self._line(line.removesuffix(b"\r").decode())) is not None:
                yield event

    @property
    def is_stale(self) -> bool:
        """Whether to connect anew although all is well: its time is up sooner than it waits."""
        near_end = self._left_s < KEPT_ALIVE_S
        return near_end and self.exchanges.clock.now() - self._opened >= _EXACT_S

    @property
    def _left_s(self) -> float:
        return inf if self.ends is None else self.ends - self.exchanges.clock.now()

    def _line(self, line: str) -> EventView | None:
        if line:
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if name == "data" and "data" in self._fields:
                value = f"{self._fields['data']}\n{value}"
            self._fields[name] = value
            return None
        told, self._fields = self._fields, {}
        return self._event(told)

    @property
    def pause_s(self) -> float:
        """Seconds until it connects again."""
        retries = self.exchanges.retries
        wanted_s = max(retries.pause_s(self._failed + 1), self._asked_s)
        return min(wanted_s, max(self._left_s, 0.0))

    def _fail(self, error: Unavailable) -> None:
        self._failed += 1
        if self.exchanges.clock.now() - self._heard >= self.exchanges.retries.silent_s:
            raise error

    def _event(self, told: dict[str, str]) -> EventView | None:
        if "data" not in told:
            return None  # a comment
        try:
            if told.get("event") == RESET:
                return self._reset(told["data"])
            event = EventView.model_validate_json(told["data"])
        except ValidationError as error:
            reason = f"{self.exchanges.base_url} tells events unlike this version of Circinus"
            raise Unavailable(reason, retry_after_s=1.0) from error
        if event.id <= self.after:  # it was told twice
            return None
        self.after = event.id
        return event

    def _reset(self, data: str) -> EventView:
        self.after = _Reset.model_validate_json(data).after
        return EventView(
            id=self.after,
            at=datetime.fromtimestamp(self.exchanges.clock.timestamp(), UTC),
            kind=RESET,
            query_id=self.query_id,
            words="Events that were asked for are not kept any more; all that are kept follow.",
            data={"after": self.after},
        )
