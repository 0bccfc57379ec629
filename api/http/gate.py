"""What every request passes before anybody acts on it: the guard, then the checks of its body.

With a token: whoever shows it, or the cookie that a browser got for it, may talk to the service.
Without: whoever reaches loopback under a loopback name. What pages of others may do: `origins`.

A plain ASGI middleware, so that unknown paths, too, tell nothing without a token, and no body is
held in memory beyond the limit.
"""

from __future__ import annotations

import asyncio
import hmac
import re
from collections.abc import AsyncIterator, Collection, Sequence
from email.message import Message
from socket import gethostname

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.types import Message as AsgiMessage

from circinus.api.http.errors import (
    BodyTooLarge,
    ClientGone,
    NotJson,
    TooSlow,
    Unauthorised,
    WrongMediaType,
    answer_of,
)
from circinus.api.http.login import LARGEST_FORM, LOGIN, LOGOUT, Login
from circinus.api.http.loop_lag import LoopLag
from circinus.api.http.origins import require_host, require_loopback, require_same_site
from circinus.api.http.pages import STATIC
from circinus.pipelines.clock import SystemClock
from circinus.pipelines.errors import CircinusError, InvalidInput
from circinus.pipelines.io.strict import MOST_VALUES, read_json

OPEN = frozenset({"/healthz", "/readyz", LOGIN, LOGOUT})
"""Paths that need no token."""
_SCHEME = "bearer"
_ARRIVED = "circinus.arrived"  # when the head of a request was there
_TREE = "circinus.tree"  # what a body holds
_MOST_DRAINED = 2**28  # bytes of a body that is too large
_PATIENCE_S = 30.0  # for a body
_LARGE = 2**21  # bytes of a body that is put together elsewhere
_LEAST_BYTES_PER_S = 2**14  # that earn it a second more: a data set of 64 MiB has an hour
_MOST_TOLD = 5000  # values of a body that tells the service what to do
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


def arrival_in(scope: Scope) -> float:
    """Return when a request's head had arrived, on the system's clock."""
    arrived: float = scope[_ARRIVED]
    return arrived


def tree_in(scope: Scope) -> object:
    """Return what a request's body holds; None without one. Not to be changed."""
    return scope.get(_TREE)


def is_guarded(path: str) -> bool:
    """Return whether a path is for those who show the token, where there is one."""
    return path not in OPEN and not path.startswith(STATIC)


class Guard:
    """Lets whoever may talk to the service through, or answers with a problem document.

    A token of None need not be shown, but only loopback names are served then; with one, names of
    this computer and `hosts`. A request is taken to have arrived `lag` earlier than it was seen:
    its head waited for a busy event loop.
    """

    def __init__(
        self,
        app: ASGIApp,
        token: str | None,
        lag: LoopLag | None = None,
        hosts: Sequence[str] = (),
        cookie: str = "circinus",
    ) -> None:
        self._app, self._token, self._clock, self._lag = app, token, SystemClock(), lag
        self._hosts, self._names = tuple(hosts), (gethostname().lower(), *hosts)
        self._login = None if token is None else Login(token, cookie, self._clock)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection, see ASGI."""
        if scope["type"] == "http":
            lag_s = 0.0 if self._lag is None else self._lag.seconds()
            scope[_ARRIVED] = self._clock.now() - lag_s
            try:
                response = await self._answered(scope, receive)
            except CircinusError as error:
                response = answer_of(error, scope)
            if response is not None:
                await response(scope, receive, send)
                return
        await self._app(scope, receive, send)

    async def _answered(self, scope: Scope, receive: Receive) -> Response | None:
        """Return what concerns nobody but the guard, or None."""
        headers, login = Headers(scope=scope), self._login
        if login is None:
            require_loopback(headers)
        else:
            require_host(headers, self._names)
        require_same_site(scope["method"], headers, self._hosts)
        if login is None:
            return None
        if scope["path"] in (LOGIN, LOGOUT):
            return await login.answer(
                scope, headers, await read_body(headers, receive, LARGEST_FORM)
            )
        if (
            not is_guarded(scope["path"])
            or self._shows_token(headers)
            or login.has_session(headers)
        ):
            return None
        if (page := login.page_instead(scope, headers)) is not None:
            return page
        raise Unauthorised("Authorization must be 'Bearer' and the token of the service.")

    def _shows_token(self, headers: Headers) -> bool:
        scheme, _, shown = headers.get("authorization", "").partition(" ")
        # As bytes: compare_digest refuses text beyond ASCII, and the time says nothing.
        same = hmac.compare_digest(shown.strip().encode(), (self._token or "").encode())
        return scheme.lower() == _SCHEME and same


class Gate:
    """Checks bodies: lets a request through to the application, or answers it.

    What a body holds goes on with it, so that it is read once.
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
                    asked = (REQUESTS, ROUTE_REQUESTS)
                    inputs = any(each.fullmatch(scope["path"]) for each in asked)
                    scope[_TREE] = parsed(body, MOST_VALUES if inputs else _MOST_TOLD)
        except CircinusError as error:
            await answer_of(error, scope)(scope, receive, send)
            return
        await self._app(scope, replayed(body, receive), send)


async def read_body(headers: Headers, receive: Receive, limit: int) -> bytes:
    """Return a body of at most so many bytes, else BodyTooLarge; and what `chunks` raises."""
    said = headers.get("content-length", "")
    too_large = said.isdecimal() and int(said[:20]) > limit
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
    """Yield a body as it comes.

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
            got = int((ends - began) * _LEAST_BYTES_PER_S)
            rule = (
                f"body must take at most {patience_s:g} s and 1 s for {_LEAST_BYTES_PER_S} bytes"
            )
            raise TooSlow(
                f"{rule}, got {got} bytes in {ends - began + patience_s:.3g} s."
            ) from error
        if message["type"] == "http.disconnect":
            raise ClientGone("the client closed the connection before the end of the body")
        chunk: bytes = message.get("body", b"")
        ends += len(chunk) / _LEAST_BYTES_PER_S
        more = message.get("more_body", False)
        yield chunk


async def _drain(rest: AsyncIterator[bytes]) -> None:
    """Take in what is still sent, up to a bound: who sends does not read the answer before."""
    taken = 0
    async for chunk in rest:
        taken += len(chunk)
        if taken >= _MOST_DRAINED:
            return


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


def parsed(body: bytes, most: int = MOST_VALUES) -> object:
    """Return what a body holds; NotJson if it is not what `read_json` reads."""
    try:
        return read_json(body, "body", most)
    except InvalidInput as error:
        raise NotJson(error.violations) from error


def replayed(body: bytes, receive: Receive) -> Receive:
    """Return the body once more, then whatever the connection has to say."""
    told = False

    async def again() -> AsgiMessage:
        nonlocal told
        if told:
            return await receive()
        told = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again
