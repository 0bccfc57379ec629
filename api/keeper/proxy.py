"""Hands requests on to the service, which listens at a Unix socket, and its answers back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpcore
from starlette.datastructures import Headers
from starlette.types import Receive, Scope, Send

from circinus.api.http.data_plane import while_connected
from circinus.api.http.errors import problem_of
from circinus.api.http.gate import read_body
from circinus.pipelines.errors import CircinusError, Unavailable

_OF_ONE_CONNECTION = frozenset({b"connection", b"expect", b"keep-alive", b"te", b"upgrade"})
_MOST_CONNECTIONS = 100
_RETRY_AFTER_S = 1.0


class Proxy:
    """An application that lets another process answer."""

    def __init__(self, service: Path, body_limit_bytes: int) -> None:
        self._limit = body_limit_bytes
        self._pool = httpcore.AsyncConnectionPool(
            uds=str(service), max_connections=_MOST_CONNECTIONS, max_keepalive_connections=10
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection, see ASGI."""
        try:
            headers = Headers(scope=scope)
            if scope["path"] == "/v1/datasets":  # large: handed on as it comes
                await self._forward(scope, _stream(receive), send)
                return
            body = await read_body(headers, receive, self._limit)
            await while_connected(receive, self._forward(scope, body, send))
        except CircinusError as error:
            await problem_of(error, scope["path"])(scope, receive, send)

    async def _forward(self, scope: Scope, body: bytes | AsyncIterator[bytes], send: Send) -> None:
        query = scope["query_string"]
        target = scope["raw_path"] + (b"?" + query if query else b"")
        request = httpcore.Request(
            scope["method"],
            httpcore.URL(scheme=b"http", host=b"service", port=None, target=target),
            headers=[(k, v) for k, v in scope["headers"] if k not in _OF_ONE_CONNECTION],
            content=body,
        )
        try:
            response = await self._pool.handle_async_request(request)
        except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException) as error:
            reason = "the service is being started, or was ended; deployments answer meanwhile"
            raise Unavailable(reason, retry_after_s=_RETRY_AFTER_S) from error
        try:
            headers = [(k, v) for k, v in response.headers if k.lower() not in _OF_ONE_CONNECTION]
            start = {"type": "http.response.start", "status": response.status, "headers": headers}
            await send(start)
            async for chunk in response.aiter_stream():
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        finally:
            await response.aclose()


async def _stream(receive: Receive) -> AsyncIterator[bytes]:
    more = True
    while more:
        message = await receive()
        yield message.get("body", b"")
        more = message.get("more_body", False)
