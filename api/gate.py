"""What every request passes before a route sees it: the guard, then the checks of its body.

A plain ASGI middleware, so that unknown paths, too, tell nothing without a token, and
no body is held in memory beyond the limit.
"""

from __future__ import annotations

from email.message import Message

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.types import Message as AsgiMessage

from api.auth import Guard
from api.errors import BodyTooLarge, WrongMediaType, trouble_of
from api.strict_json import parse_json
from pipelines.errors import CircinusError

_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})


class Gate:
    """Lets a request through, or answers it with a problem document."""

    def __init__(self, app: ASGIApp, guard: Guard, body_limit_bytes: int) -> None:
        self._app = app
        self._guard = guard
        self._limit = body_limit_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection, see ASGI."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            headers = Headers(scope=scope)
            self._guard.check(scope["path"], headers)
            body = await self._checked_body(scope["method"], headers, receive)
        except CircinusError as error:
            await trouble_of(error, scope["path"]).response()(scope, receive, send)
            return
        await self._app(scope, _replay(body, receive), send)

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
