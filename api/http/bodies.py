"""Bodies of requests: at most so large, in time, of the type that a path takes, and read once.

A plain ASGI middleware: no body is held in memory beyond the limit. The parsed body goes on with
the request, for routes of the class `ReadOnce`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Collection, Coroutine
from email.message import Message
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.types import Message as AsgiMessage

from circinus.api.http.errors import (
    BodyTooLarge,
    ClientGone,
    NotJson,
    TooSlow,
    WrongMediaType,
    answer_of,
)
from circinus.pipelines.errors import CircinusError, InvalidInput
from circinus.pipelines.io.strict import MOST_VALUES, read_json

_TREE = "circinus.tree"  # what a body holds
_MOST_DRAINED = 2**28  # bytes of a body that is too large
_PATIENCE_S = 30.0  # for a body
_LARGE = 2**21  # bytes of a body that is put together elsewhere
_LEAST_BYTES_PER_S = 2**14  # that earn it a second more: a data set of 64 MiB has an hour
_MOST_CHANGES = 5000  # values of a body that changes the service
REQUESTS = re.compile(r"/v1/queries/([^/]+)/requests")
"""The path of requests to deployments, with the query."""
ROUTE_REQUESTS = re.compile(r"/v1/routes/([^/]+)/requests")
"""The path of requests to routes, with the route."""
_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})
JSON = "application/json"
FORM = "application/x-www-form-urlencoded"
_PAGES = "/ui/"  # what is sent to a path below is a form
UPLOADS = {"application/jsonl": "jsonl", "application/x-ndjson": "jsonl", "application/zip": "zip"}
"""Media types of data sets, with the kind that each is."""


class BodyLimits:
    """Checks bodies: lets a request through to the application, or answers it.

    The parsed body goes on with the request, so that it is read once.
    """

    def __init__(self, app: ASGIApp, body_limit_bytes: int, dataset_limit_bytes: int) -> None:
        self._app = app
        self._limit, self._dataset_limit = body_limit_bytes, dataset_limit_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection, see ASGI."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            headers = Headers(scope=scope)
            method, uploads = scope["method"], scope["path"] == "/v1/datasets"
            limit = self._dataset_limit if uploads else self._limit
            body = await read_body(headers, receive, limit)
            if method in _WITH_BODY and (body or (uploads and method == "POST")):
                form = scope["path"].startswith(_PAGES)
                require_type(headers, UPLOADS if uploads else {FORM if form else JSON: ""})
                if not (uploads or form):
                    request_paths = (REQUESTS, ROUTE_REQUESTS)
                    inputs = any(each.fullmatch(scope["path"]) for each in request_paths)
                    scope[_TREE] = parsed(body, MOST_VALUES if inputs else _MOST_CHANGES)
        except CircinusError as error:
            await answer_of(error, scope)(scope, receive, send)
            return
        await self._app(scope, replayed(body, receive), send)


async def read_body(headers: Headers, receive: Receive, limit: int) -> bytes:
    """Return a body of at most so many bytes, else BodyTooLarge; and what `chunks` raises."""
    declared = headers.get("content-length", "")
    too_large = declared.isdecimal() and int(declared[:20]) > limit
    read: list[bytes] = []
    size, more = 0, chunks(receive)
    if not too_large:
        async for chunk in more:
            read.append(chunk)
            size += len(chunk)
            if too_large := size > limit:
                break
    if too_large:
        if read or "expect" not in headers:  # else the sender waits for a word before the body
            await _drain(more)
        raise BodyTooLarge(f"body must have at most {limit} bytes, got more.")
    if size > _LARGE and len(read) > 1:
        return await asyncio.to_thread(b"".join, read)  # which gives way only where it is large
    return b"".join(read)


async def chunks(receive: Receive, patience_s: float = _PATIENCE_S) -> AsyncIterator[bytes]:
    """Yield a body in chunks as they arrive.

    Raises TooSlow if it takes longer than `patience_s`, and a second more for every 16 KiB, and
    ClientGone if it ends before its end.
    """
    began = ends = asyncio.get_running_loop().time() + patience_s
    more = True
    while more:
        try:
            async with asyncio.timeout_at(ends):
                message = await receive()
        except TimeoutError as error:
            received = int((ends - began) * _LEAST_BYTES_PER_S)
            rule = (
                f"body must take at most {patience_s:g} s and 1 s for {_LEAST_BYTES_PER_S} bytes"
            )
            raise TooSlow(
                f"{rule}, got {received} bytes in {ends - began + patience_s:.3g} s."
            ) from error
        if message["type"] == "http.disconnect":
            raise ClientGone("the client closed the connection before the end of the body")
        chunk: bytes = message.get("body", b"")
        ends += len(chunk) / _LEAST_BYTES_PER_S
        more = message.get("more_body", False)
        yield chunk


async def _drain(rest: AsyncIterator[bytes]) -> None:
    """Read the rest of a body, up to a bound: a client that sends does not read the answer."""
    taken = 0
    async for chunk in rest:
        taken += len(chunk)
        if taken >= _MOST_DRAINED:
            return


def require_type(headers: Headers, kinds: Collection[str]) -> None:
    """Raise WrongMediaType unless the headers declare one of the kinds."""
    content_type = headers.get("content-type", "")
    if content_type in kinds:  # as it is written nearly always
        return
    header = Message()
    header["content-type"] = content_type
    if not content_type or header.get_content_type() not in kinds:
        rule = f"Content-Type must be {' or '.join(kinds)}"
        raise WrongMediaType(f"{rule}, got {content_type[:80]!r}.")


def parsed(body: bytes, most: int = MOST_VALUES) -> object:
    """Return what a body holds; NotJson if it is not what `read_json` reads."""
    try:
        return read_json(body, "body", most)
    except InvalidInput as error:
        raise NotJson(error.violations) from error


def replayed(body: bytes, receive: Receive) -> Receive:
    """Return a receiver of the body once more, then of the connection's further messages."""
    sent = False

    async def again() -> AsgiMessage:
        nonlocal sent
        if sent:
            return await receive()
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


class ReadOnce(APIRoute):
    """A route whose requests have been read."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return FastAPI's own handler, on such a request."""
        handle = super().get_route_handler()

        async def read(request: Request) -> Response:
            return await handle(_Read(request.scope, request.receive))

        return read


class _Read(Request):
    async def json(self) -> Any:  # noqa: ANN401 - as it is overridden
        return self.scope.get(_TREE)
