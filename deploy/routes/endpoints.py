"""Endpoints over HTTP that others run: a request body goes there, a response returns."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import httpcore

from circinus.pipelines import checks
from circinus.pipelines.errors import CircinusError

ANSWER_S = 60.0
"""That an answer may take."""

_FAILED = 400
_NOT_NOW = frozenset({429, 502, 503, 504})
_STAGES = ("connect", "read", "write", "pool")
_AWAY = (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException)


class EndpointFailed(CircinusError):
    """An endpoint did not answer a request, or with an error."""


class EndpointAway(EndpointFailed):
    """It was not reached, or reports that it, or its upstream, is unavailable now."""


@dataclass(slots=True, kw_only=True)
class HttpEndpoint:
    """Calls it over as many connections as there are requests at once. Of one event loop.

    A pool of httpcore's looks at all of them for each request: with many that wait, the sender
    would be what is measured.
    """

    url: httpcore.URL
    timeout_s: float
    tls: ssl.SSLContext | None
    idle: list[httpcore.AsyncHTTPConnection] = field(default_factory=list)

    async def answer(self, body: bytes | None) -> bytes:
        """Return its response to a JSON body by POST; None: to a GET request.

        Raises EndpointFailed, EndpointAway where it may answer later.
        """
        connection = self._connection()
        try:
            reply = await self._request(connection, body)
        except _AWAY as error:
            cause = str(error) or type(error).__name__
            raise EndpointAway(f"{_text(self.url)}: {cause}") from error
        finally:
            if connection.is_idle():
                self.idle.append(connection)
            else:
                await connection.aclose()
        if reply.status >= _FAILED:
            kind = EndpointAway if reply.status in _NOT_NOW else EndpointFailed
            raise kind(f"{_text(self.url)}: answered {reply.status}")
        return reply.content

    def _connection(self) -> httpcore.AsyncHTTPConnection:
        while self.idle:
            connection = self.idle.pop()
            if not connection.has_expired():  # closed by the server meanwhile
                return connection
        return httpcore.AsyncHTTPConnection(self.url.origin, ssl_context=self.tls)

    async def _request(
        self, connection: httpcore.AsyncHTTPConnection, body: bytes | None
    ) -> httpcore.Response:
        headers: dict[bytes | str, bytes | str] = {"host": _host(self.url)}
        if body is not None:
            headers["content-type"] = "application/json"
        return await connection.request(
            "GET" if body is None else "POST",
            self.url,
            headers=headers,
            content=body,
            extensions={"timeout": dict.fromkeys(_STAGES, self.timeout_s)},
        )


@asynccontextmanager
async def opened_endpoint(url: str, *, timeout_s: float = ANSWER_S) -> AsyncIterator[HttpEndpoint]:
    """Return an endpoint, whose connections are closed at the end; InvalidInput as `check_url`."""
    check_url("--url", url)
    tls = httpcore.default_ssl_context() if urlsplit(url).scheme == "https" else None
    endpoint = HttpEndpoint(url=httpcore.URL(url), timeout_s=timeout_s, tls=tls)
    try:
        yield endpoint
    finally:
        for connection in endpoint.idle:
            await connection.aclose()


def check_url(field: str, url: str) -> None:
    """Raise InvalidInput unless a URL is of HTTP or HTTPS."""
    try:
        parts = urlsplit(url)
        _ = parts.port
        well = parts.scheme in ("http", "https") and bool(parts.hostname) and url.isascii()
    except ValueError:  # a port that is none
        well = False
    checks.require(well, field, "must be of http or https", url)


def _host(url: httpcore.URL) -> str:
    host = url.host.decode("ascii")
    return host if url.port is None else f"{host}:{url.port}"


def _text(url: httpcore.URL) -> str:
    return f"{url.scheme.decode()}://{_host(url)}{url.target.decode('ascii')}"
