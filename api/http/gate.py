"""What every request passes before a route sees it: the guard, then the checks of its body.

With a token: whoever shows it may talk to the service. Without: whoever reaches loopback under a
loopback name; a web page that points its own name at 127.0.0.1 (DNS rebinding) is refused.

A plain ASGI middleware, so that unknown paths, too, tell nothing without a token, and no body is
held in memory beyond the limit.
"""

from __future__ import annotations

import hmac
from email.message import Message

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.types import Message as AsgiMessage

from circinus.api.http.errors import (
    BodyTooLarge,
    Unauthorised,
    WrongHost,
    WrongMediaType,
    problem_of,
)
from circinus.api.http.strict_json import parse_json
from circinus.api.settings import is_loopback
from circinus.pipelines.errors import CircinusError

GUARDED = ("/v1", "/metrics")
_SCHEME = "bearer"
_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})


class Gate:
    """Lets a request through, or answers it with a problem document.

    Args:
        app: Behind the gate.
        token: What must be shown; None: nothing, but only loopback names are served.
        body_limit_bytes: Of a request.
    """

    def __init__(self, app: ASGIApp, token: str | None, body_limit_bytes: int) -> None:
        self._app = app
        self._token = token
        self._limit = body_limit_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection, see ASGI."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            headers = Headers(scope=scope)
            self._check(scope["path"], headers)
            body = await self._checked_body(scope["method"], headers, receive)
        except CircinusError as error:
            await problem_of(error, scope["path"])(scope, receive, send)
            return
        await self._app(scope, _replay(body, receive), send)

    def _check(self, path: str, headers: Headers) -> None:
        if self._token is None:
            _check_host(headers.get("host", ""))
        elif any(path == own or path.startswith(f"{own}/") for own in GUARDED):
            _check_token(self._token, headers.get("authorization", ""))

    async def _checked_body(self, method: str, headers: Headers, receive: Receive) -> bytes:
        said = headers.get("content-length", "")
        if said.isdecimal() and int(said[:20]) > self._limit:
            raise BodyTooLarge(self._limit)
        body = await _read(receive, self._limit)
        if method in _WITH_BODY and body:
            _require_json(headers.get("content-type", ""))
            parse_json(body)
        return body


async def _read(receive: Receive, limit: int) -> bytes:
    body = bytearray()
    more = True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
        if len(body) > limit:
            raise BodyTooLarge(limit)
    return bytes(body)


def _require_json(content_type: str) -> None:
    header = Message()
    header["content-type"] = content_type
    if not content_type or header.get_content_type() != "application/json":
        raise WrongMediaType(content_type[:80])


def _replay(body: bytes, receive: Receive) -> Receive:
    """Give the body once more, then whatever the connection has to say."""
    told = False

    async def replayed() -> AsgiMessage:
        nonlocal told
        if told:
            return await receive()
        told = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replayed


def _check_host(host: str) -> None:
    name = host if host.startswith("[") and host.endswith("]") else host.rpartition(":")[0] or host
    if not is_loopback(name):
        raise WrongHost(
            f"Host must be a loopback name while the service has no token, got {host[:80]!r}."
        )


def _check_token(token: str, header: str) -> None:
    scheme, _, shown = header.partition(" ")
    # As bytes: compare_digest refuses text beyond ASCII, and the time says nothing.
    same = hmac.compare_digest(shown.strip().encode(), token.encode())
    if scheme.lower() != _SCHEME or not same:
        raise Unauthorised("Authorization must be 'Bearer' and the token of the service.")
