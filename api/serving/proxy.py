"""Hands requests on to the service, at a Unix socket or elsewhere, and its answers back."""

from __future__ import annotations

import asyncio
import re
import socket
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import httpcore
from starlette.datastructures import Headers
from starlette.types import Message, Receive, Scope, Send

from circinus.api.http.bodies import REQUESTS, chunks, read_body
from circinus.api.http.data_plane import while_connected
from circinus.api.http.errors import answer_of
from circinus.api.http.event_stream import wants_stream
from circinus.api.serving.bounded import abort
from circinus.api.settings import Settings
from circinus.pipelines import checks
from circinus.pipelines.errors import CircinusError, Unavailable

_OF_ONE_CONNECTION = frozenset({b"connection", b"expect", b"keep-alive", b"te", b"upgrade"})
_UPLOADS = "/v1/datasets"
_WATCHING = frozenset({"/readyz", "/metrics"})
# In hand: an upload is held in memory whole; examples of a pipeline are made for requests.
_MOST_WATCHING, _MOST_UPLOADS, _MOST_EXAMPLES = 20, 4, 64
_EXAMPLES = "examples"
_STREAMS = "streams"
_OF_STREAMS = re.compile(r"/v1/(queries/[^/]+/)?events")
_RETRY_AFTER_S = 1.0
_AWAY = (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException)
_CONNECTS_S = 2.0  # an abandoned address does not answer
_IDLE_S = 2.0  # idle connections: shorter than the other end holds them
# A computer that is gone does not answer: after 5 + 3 * 5 s its connection is closed.
_ALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
)


@dataclass(frozen=True, slots=True)
class Upstream:
    """Where the service listens."""

    origin: httpcore.Origin
    path: str | None = None  # of a Unix socket; None: at the origin

    @classmethod
    def at(cls, path: Path) -> Upstream:
        """Return a Unix socket of this computer."""
        return cls(httpcore.Origin(b"http", b"service", 80), str(path))

    @classmethod
    def of(cls, url: str) -> Upstream:
        """Return the place of a URL; InvalidInput if it is none."""
        try:
            parts = urlsplit(url)
            host, scheme = parts.hostname or "", parts.scheme
            port = parts.port or (443 if scheme == "https" else 80)
        except ValueError:
            host, scheme, port = "", "", 0
        plain = scheme in ("http", "https") and parts.path in ("", "/") and not parts.query
        rule = "must be http://HOST:PORT or https://HOST:PORT"
        checks.require(bool(host) and plain, "service", rule, url)
        return cls(httpcore.Origin(scheme.encode(), host.encode("idna"), port))

    @property
    def _options(self) -> tuple[tuple[int, int, int], ...]:
        return () if self.path is not None else _ALIVE

    def pool(self, most: int) -> httpcore.AsyncConnectionPool:
        """Return connections to it, at most so many."""
        return httpcore.AsyncConnectionPool(
            uds=self.path,
            max_connections=most,
            max_keepalive_connections=10,
            keepalive_expiry=None if self.path is not None else _IDLE_S,
            socket_options=self._options,
        )

    def connection(self) -> httpcore.AsyncHTTPConnection:
        """Return one that no other request uses."""
        return httpcore.AsyncHTTPConnection(
            self.origin, uds=self.path, socket_options=self._options
        )


class Proxy:
    """An application that proxies requests to another process.

    It has at most `most` requests in hand, and turns others away before it reads their bodies.
    Health checks of the service do not count, nor do `streams` of events. A client that reads
    nothing of a stream is cut off when patience ends.
    """

    def __init__(
        self,
        service: Upstream,
        body_limit_bytes: int,
        most: int,
        streams: int = 2000,
        patience_s: float = 60.0,
    ) -> None:
        self._service, self._limit = service, body_limit_bytes
        self._patience_s = patience_s
        self._most = {"": most, _UPLOADS: _MOST_UPLOADS, "watching": _MOST_WATCHING}
        self._most[_EXAMPLES] = min(most, _MOST_EXAMPLES)
        self._in_hand: Counter[str] = Counter()
        self._pool = service.pool(sum(self._most.values()))
        self._most[_STREAMS] = streams
        self._streams: set[httpcore.AsyncHTTPConnection] = set()

    @classmethod
    def to(cls, service: Upstream, settings: Settings) -> Proxy:
        """Return what hands requests on to a service, within the limits of settings."""
        largest = max(settings.body_limit_bytes, settings.dataset_limit_bytes)
        return cls(service, largest, settings.control_limit, settings.stream_limit)

    def streams(self) -> int:
        """Return how many streams of events are open."""
        return self._in_hand[_STREAMS]

    async def end_streams(self) -> None:
        """End all streams of events."""
        for connection in tuple(self._streams):
            await connection.aclose()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection, see ASGI."""
        kind, begun = _kind(scope), False
        in_hand = ExitStack()

        async def noting(message: Message) -> None:
            nonlocal begun
            begun = True
            if message["type"] == "http.response.body" and not message.get("more_body"):
                in_hand.close()  # before its client has the whole, and sends the next request
            await send(message)

        try:
            if self._in_hand[kind] >= self._most[kind]:
                reason = f"{self._most[kind]} such requests wait for the service already"
                raise Unavailable(reason, retry_after_s=_RETRY_AFTER_S)
            with in_hand:
                self._in_hand[kind] += 1
                in_hand.callback(self._in_hand.subtract, (kind,))
                await self._answer(kind, scope, receive, noting)
        except CircinusError as error:
            if not begun:  # else no other answer can complete what the client has
                await answer_of(error, scope)(scope, receive, send)

    async def _answer(self, kind: str, scope: Scope, receive: Receive, send: Send) -> None:
        if kind == _UPLOADS:  # large: proxied in chunks
            await self._forward(scope, chunks(receive), send)
            return
        body = await read_body(Headers(scope=scope), receive, self._limit)
        way = self._forward if kind != _STREAMS else self._stream
        await while_connected(receive, way(scope, body, send))

    async def _stream(self, scope: Scope, body: bytes, send: Send) -> None:
        """Proxy an endless stream, by a connection that no other request waits for."""

        async def patiently(message: Message) -> None:
            try:
                async with asyncio.timeout(self._patience_s):
                    await send(message)
            except TimeoutError:
                abort(scope)

        # Not by the pool: each request through it looks at all of its connections.
        connection = self._service.connection()
        self._streams.add(connection)
        try:
            await self._forward(scope, body, patiently, connection)
        finally:
            self._streams.discard(connection)
            await connection.aclose()

    async def _forward(
        self,
        scope: Scope,
        body: bytes | AsyncIterator[bytes],
        send: Send,
        stream: httpcore.AsyncHTTPConnection | None = None,
    ) -> None:
        query = scope["query_string"]
        target = scope["raw_path"] + (b"?" + query if query else b"")
        origin = self._service.origin
        request = httpcore.Request(
            scope["method"],
            httpcore.URL(scheme=origin.scheme, host=origin.host, port=origin.port, target=target),
            headers=[(k, v) for k, v in scope["headers"] if k not in _OF_ONE_CONNECTION],
            content=body,
            extensions={"timeout": {"connect": _CONNECTS_S}},
        )
        try:
            response = await (stream or self._pool).handle_async_request(request)
        except _AWAY as error:
            reason = "the service is being started, or was ended; deployments answer meanwhile"
            raise Unavailable(reason, retry_after_s=_RETRY_AFTER_S) from error
        try:
            headers = [(k, v) for k, v in response.headers if k.lower() not in _OF_ONE_CONNECTION]
            start = {"type": "http.response.start", "status": response.status, "headers": headers}
            await send(start)
            last = b""  # of an answer: sent with its end
            try:
                async for chunk in response.aiter_stream():
                    if stream is None:
                        chunk, last = last, chunk
                    if chunk:
                        await send(
                            {"type": "http.response.body", "body": chunk, "more_body": True}
                        )
            except _AWAY:
                if stream is None:
                    raise  # what was sent is not the whole; of events, each is whole by itself
        finally:
            await response.aclose()
        await send({"type": "http.response.body", "body": last})


def _kind(scope: Scope) -> str:
    if scope["path"] in _WATCHING:
        return "watching"
    events = scope["method"] == "GET" and _OF_STREAMS.fullmatch(scope["path"])
    if events and wants_stream(Headers(scope=scope)):
        return _STREAMS
    if scope["method"] == "POST" and REQUESTS.fullmatch(scope["path"]):
        return _EXAMPLES
    return _UPLOADS if (scope["method"], scope["path"]) == ("POST", _UPLOADS) else ""
