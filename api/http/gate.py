"""What every request passes before anybody acts on it: the guard, then the checks of its body.

With a token: whoever shows it may talk to the service. Without: whoever reaches loopback under a
loopback name; a web page that points its own name at 127.0.0.1 (DNS rebinding) is refused.

A plain ASGI middleware, so that unknown paths, too, tell nothing without a token, and no body is
held in memory beyond the limit.
"""

from __future__ import annotations

import hmac
from collections.abc import Collection
from email.message import Message
from functools import lru_cache

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.types import Message as AsgiMessage

from circinus.api.http.errors import (
    BodyTooLarge,
    NotJson,
    Unauthorised,
    WrongHost,
    WrongMediaType,
    problem_of,
)
from circinus.api.http.loop_lag import LoopLag
from circinus.api.settings import is_loopback
from circinus.pipelines.clock import SystemClock
from circinus.pipelines.errors import CircinusError, InvalidInput
from circinus.pipelines.strict_json import read_json

GUARDED = ("/v1", "/metrics")
_SCHEME = "bearer"
_ARRIVED = "circinus.arrived"  # when the head of a request was there
_MOST_DRAINED = 2**28  # bytes of a body that is too large
_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})
JSON = "application/json"
UPLOADS = {"application/jsonl": "jsonl", "application/x-ndjson": "jsonl", "application/zip": "zip"}
"""Media types of data sets, with the kind that each is."""


_is_loopback = lru_cache(maxsize=64)(is_loopback)


def arrival_in(scope: Scope) -> float:
    """Give when a request's head had arrived, on the system's clock."""
    arrived: float = scope[_ARRIVED]
    return arrived


def is_guarded(path: str) -> bool:
    """Give whether a path is for those who show the token, where there is one."""
    return any(path == own or path.startswith(f"{own}/") for own in GUARDED)


class Guard:
    """Lets whoever may talk to the service through, or answers with a problem document.

    A token of None need not be shown, but only loopback names are served then. A request is taken
    to have arrived `lag` earlier than it was seen: its head waited for a busy event loop.
    """

    def __init__(self, app: ASGIApp, token: str | None, lag: LoopLag | None = None) -> None:
        self._app, self._token, self._clock, self._lag = app, token, SystemClock(), lag

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection, see ASGI."""
        if scope["type"] == "http":
            lag_s = 0.0 if self._lag is None else self._lag.seconds()
            scope[_ARRIVED] = self._clock.now() - lag_s
            try:
                self._check(scope["path"], Headers(scope=scope))
            except CircinusError as error:
                await problem_of(error, scope["path"])(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _check(self, path: str, headers: Headers) -> None:
        if self._token is None:
            host = headers.get("host", "")
            bare = host.startswith("[") and host.endswith("]")
            if not _is_loopback(host if bare else host.rpartition(":")[0] or host):
                rule = "Host must be a loopback name while the service has no token"
                raise WrongHost(f"{rule}, got {host[:80]!r}.")
        elif is_guarded(path):
            scheme, _, shown = headers.get("authorization", "").partition(" ")
            # As bytes: compare_digest refuses text beyond ASCII, and the time says nothing.
            same = hmac.compare_digest(shown.strip().encode(), self._token.encode())
            if scheme.lower() != _SCHEME or not same:
                raise Unauthorised("Authorization must be 'Bearer' and the token of the service.")


class Gate:
    """Checks bodies: lets a request through to the application, or answers it."""

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
                require_type(headers, UPLOADS if uploads else {JSON: ""})
                if not uploads:
                    parsed(body)
        except CircinusError as error:
            await problem_of(error, scope["path"])(scope, receive, send)
            return
        await self._app(scope, replayed(body, receive), send)


async def read_body(headers: Headers, receive: Receive, limit: int) -> bytes:
    """Give a body of at most so many bytes, else BodyTooLarge."""
    said = headers.get("content-length", "")
    too_large = said.isdecimal() and int(said[:20]) > limit
    read, more = bytearray(), True
    while more and not too_large:
        message = await receive()
        read += message.get("body", b"")
        more = message.get("more_body", False)
        too_large = len(read) > limit
    if too_large:
        if read or "expect" not in headers:  # else the sender waits for a word before the body
            await _drain(receive, more=more)
        raise BodyTooLarge(f"body must have at most {limit} bytes, got more.")
    return bytes(read)


async def _drain(receive: Receive, *, more: bool) -> None:
    """Take in what is still sent, up to a bound: who sends does not read the answer before."""
    taken = 0
    while more and taken < _MOST_DRAINED:
        message = await receive()
        taken += len(message.get("body", b""))
        more = message.get("more_body", False)


def require_type(headers: Headers, kinds: Collection[str]) -> None:
    """Raise WrongMediaType unless a body is said to be of one of the kinds."""
    content_type = headers.get("content-type", "")
    if content_type in kinds:  # as it is written nearly always
        return
    header = Message()
    header["content-type"] = content_type
    if not content_type or header.get_content_type() not in kinds:
        rule = f"Content-Type must be {' or '.join(kinds)}"
        raise WrongMediaType(f"{rule}, got {content_type[:80]!r}.")


def parsed(body: bytes) -> object:
    """Give what a body holds; NotJson if it is not what `read_json` reads."""
    try:
        return read_json(body, "body")
    except InvalidInput as error:
        raise NotJson(error.faults) from error


def replayed(body: bytes, receive: Receive) -> Receive:
    """Give the body once more, then whatever the connection has to say."""
    told = False

    async def again() -> AsgiMessage:
        nonlocal told
        if told:
            return await receive()
        told = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again
