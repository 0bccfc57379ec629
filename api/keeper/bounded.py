"""HTTP at the port where clients come, bounded: connections, heads, and how long both may take.

uvicorn bounds none of it: a client that sends one byte a minute, or a head without end, would hold
a connection, or the memory, of all others. What is refused here is refused by a problem document,
and the connection is closed behind it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from circinus.api.http.errors import HeadTooLarge, NotHttp, TooSlow, problem_of
from circinus.pipelines.errors import CircinusError, Unavailable

_MOST_PIPELINED = 100
_RETRY_AFTER_S = 1.0
_ABORT = "circinus.abort"


def abort(scope: Scope) -> None:
    """End the connection of a request at once, whatever was not taken in yet."""
    scope[_ABORT]()


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeLimits:
    """What clients may take of a server."""

    connections: int  # so many again are told to come later, others are closed without a word
    head_bytes: int = 2**16
    head_s: float = 10.0  # for a head, and until the first one begins
    apart: Callable[[], int] = lambda: 0  # tells how many more are counted elsewhere


def bounded(limits: EdgeLimits) -> type[HttpToolsProtocol]:
    """Give uvicorn's protocol within limits."""

    class Bounded(_Bounded):
        bounds = limits

    return Bounded


class _Bounded(HttpToolsProtocol):
    bounds: ClassVar[EdgeLimits]
    _awaits_head = True
    _patience: asyncio.TimerHandle | None = None  # while it does
    _held = 0  # bytes since a head was complete, or a part of a body there
    _went_on = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        most = self.bounds.connections + self.bounds.apart()
        if len(self.connections) > most:
            self.app = _full
        if len(self.connections) > 2 * most:
            transport.abort()
        else:
            self._be_patient()

    def connection_lost(self, exc: Exception | None) -> None:
        self._be_patient(until_closed=True)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        self._went_on = False
        self._held += len(data)
        super().data_received(data)
        if self._went_on:
            self._held = 0
        elif self._held > self.bounds.head_bytes:
            self._refuse(self._too_large())
        self._be_patient()

    def on_message_begin(self) -> None:
        self._awaits_head = True
        super().on_message_begin()
        self.scope[_ABORT] = self.transport.abort  # type: ignore[literal-required]  # our own

    def on_headers_complete(self) -> None:
        self._awaits_head, self._went_on = False, True
        if len(self.pipeline) >= _MOST_PIPELINED:
            raise self._too_large()
        if self._held > self.bounds.head_bytes:  # it may be: a body can have come with it
            told = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
            if told > self.bounds.head_bytes:
                self._refuse(self._too_large())
                raise self._too_large()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._went_on = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._went_on = True
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        self._refuse(NotHttp("request must be HTTP/1.1, got something else."))

    def _be_patient(self, *, until_closed: bool = False) -> None:
        """Have a timer if, and only if, a head is awaited."""
        awaits = self._awaits_head and not until_closed
        if awaits and self._patience is None:
            self._patience = self.loop.call_later(self.bounds.head_s, self._lose_patience)
        elif not awaits and self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _lose_patience(self) -> None:
        self._refuse(TooSlow(f"head must arrive within {self.bounds.head_s:g} s, got a part."))

    def _too_large(self) -> HeadTooLarge:
        return HeadTooLarge(f"head must have at most {self.bounds.head_bytes} bytes, got more.")

    def _refuse(self, error: CircinusError) -> None:
        """Say why, unless something else is being said, and close the connection."""
        if self.transport.is_closing():
            return
        under_way: RequestResponseCycle | None = self.cycle
        if under_way is not None and not under_way.response_complete:
            under_way.disconnected = True
            under_way.message_event.set()
            begun = under_way.response_started or bool(self.pipeline)
        else:
            begun = False
        if not begun:
            response = problem_of(error, "/")
            named = [*self.server_state.default_headers, *response.raw_headers]
            lines = [name + b": " + value + b"\r\n" for name, value in named]
            head = b"".join([STATUS_LINE[response.status_code], *lines])
            self.transport.write(head + b"connection: close\r\n\r\n" + bytes(response.body))
        self.transport.close()


async def _full(scope: Scope, receive: Receive, send: Send) -> None:
    reason = "more clients are connected than the service takes"
    response = problem_of(Unavailable(reason, retry_after_s=_RETRY_AFTER_S), scope["path"])
    response.headers["Connection"] = "close"
    await response(scope, receive, send)
