"""Bounded HTTP at the clients' port: connections, heads, and how long both may take.

uvicorn bounds none of it. A client that sends one byte a minute, or a head without end, would hold
a connection, or the memory, of all others. A refusal here is a problem document, and closes the
connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import ClassVar

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from circinus.api.http.errors import HeadTooLarge, NotHttp, TooSlow, problem_of
from circinus.pipelines.errors import CircinusError, Unavailable

_MOST_PIPELINED = 100
_PART = 2**14  # bytes that are parsed at once: some hundred requests at most
_IDLE_S = 1.0  # after which a connection makes way for another
_HEALTH = "/healthz"  # answered however many are connected
_RETRY_AFTER_S = 1.0
_ABORT = "circinus.abort"


def abort(scope: Scope) -> None:
    """End the connection of a request at once, whatever was not taken in yet."""
    scope[_ABORT]()


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeLimits:
    """What clients may take of a server."""

    # Beyond them idle ones are closed; so many again are answered to retry later, others closed
    # without a word.
    connections: int
    head_bytes: int = 2**16
    head_s: float = 10.0  # for a head, and until the first one begins
    apart: Callable[[], int] = lambda: 0  # returns how many more are counted elsewhere


def bounded(limits: EdgeLimits) -> type[HttpToolsProtocol]:
    """Return uvicorn's protocol within limits."""

    class Bounded(_Bounded):
        bounds = limits

    return Bounded


class _Bounded(HttpToolsProtocol):
    bounds: ClassVar[EdgeLimits]
    _awaits_head = True
    _patience: asyncio.TimerHandle | None = None  # while it does
    _held = 0  # bytes since a head was complete, or a part of a body there
    _progressed = False
    _unparsed = b""  # what follows the most requests that may wait
    _idle_since = inf

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._idle_since = self.loop.time()
        most = self.bounds.connections + self.bounds.apart()
        if len(self.connections) > most and not self._close_one_idle():
            self.app = _full_before(self.app)
        if len(self.connections) > 2 * most:
            transport.abort()
        else:
            self._be_patient()

    def connection_lost(self, exc: Exception | None) -> None:
        self._be_patient(until_closed=True)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._idle_since = inf
        self._unparsed += data
        self._parse()

    def _parse(self) -> None:
        """Parse what has arrived, as far as its requests may wait for one another."""
        begin, data = 0, self._unparsed
        while begin < len(data) and len(self.pipeline) < _MOST_PIPELINED:
            if self.transport.is_closing():
                return
            self._parse_part(data[begin : begin + _PART])
            begin += _PART
        self._unparsed = data[begin:]

    def _parse_part(self, data: bytes) -> None:
        self._progressed = False
        self._held += len(data)
        super().data_received(data)
        if self._progressed:
            self._held = 0
        elif self._held > self.bounds.head_bytes:
            self._refuse(self._too_large())
        self._be_patient()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing():
            return
        if self._unparsed:
            self._parse()
        elif self.cycle.response_complete and not self._held:
            self._idle_since = self.loop.time()

    def on_message_begin(self) -> None:
        self._awaits_head = True
        super().on_message_begin()
        self.scope[_ABORT] = self.transport.abort  # type: ignore[literal-required]  # our own

    def on_headers_complete(self) -> None:
        self._awaits_head, self._progressed = False, True
        if (rule := _broken_rule(self.headers)) is not None:
            self._refuse(NotHttp(rule))
            raise NotHttp(rule)
        if self._held > self.bounds.head_bytes:  # it may be: a body can have arrived with it
            size = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
            if size > self.bounds.head_bytes:
                self._refuse(self._too_large())
                raise self._too_large()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._progressed = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._progressed = True
        super().on_message_complete()

    def _unsupported_upgrade_warning(self) -> None:
        """Answer as if there was no upgrade, and close: the following bytes are no HTTP."""
        self.cycle.keep_alive = False

    def send_400_response(self, msg: str) -> None:
        self._refuse(NotHttp("request must be HTTP/1.1, got something else."))

    def _close_one_idle(self) -> bool:
        """Close the connection that has been idle for longest; return whether there was one."""
        ours = (each for each in self.connections if isinstance(each, _Bounded))
        idlest = min(ours, key=lambda each: each._idle_since)
        if self.loop.time() - idlest._idle_since < _IDLE_S:
            return False
        idlest.transport.abort()
        return True

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
        """Send the problem, unless an answer is being sent, and close the connection."""
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


def _broken_rule(headers: list[tuple[bytes, bytes]]) -> str | None:
    """Return the violation in a request's Host or framing headers; None: it is valid."""
    hosts = [value for name, value in headers if name == b"host"]
    if len(hosts) > 1:
        return f"Host must be given once, got {len(hosts)} of them."
    codings = [value for name, value in headers if name == b"transfer-encoding"]
    if codings and [each.strip().lower() for each in codings] != [b"chunked"]:
        text = b", ".join(codings).decode("latin-1")[:80]
        return f"Transfer-Encoding must be chunked, got {text!r}."
    return None


def _full_before(app: ASGIApp) -> ASGIApp:
    """Answer all requests but health checks of this process with 503, to retry later."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == _HEALTH:
            await app(scope, receive, send)
            return
        reason = "more clients are connected than the service takes"
        response = problem_of(Unavailable(reason, retry_after_s=_RETRY_AFTER_S), scope["path"])
        response.headers["Connection"] = "close"
        await response(scope, receive, send)

    return answer
