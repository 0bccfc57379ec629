"""The one table from errors to HTTP: every problem document (RFC 9457) is made here.

Browsers get the same as a page.

Errors of the edge itself are declared here too; all others are raised below, in code that does
not use HTTP.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from math import ceil

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import Scope

from circinus.api.event_log import trouble
from circinus.api.http.pages import page
from circinus.api.schemas.base import ProblemDetails
from circinus.api.schemas.violations import violations_of
from circinus.api.store.failures import DatabaseFull
from circinus.api.store.records import Conflict, NotFound, QueueFull
from circinus.deploy.workers.errors import TooManyRequests
from circinus.pipelines.errors import (
    CircinusError,
    InvalidInput,
    OperatorFailed,
    Unavailable,
    Violation,
)

MEDIA_TYPE = "application/problem+json"
_METHODS = ("DELETE", "GET", "HEAD", "PATCH", "POST", "PUT")
_LOG = logging.getLogger(__name__)


class Unauthorised(CircinusError):
    """The token is missing or wrong."""


class WrongHost(CircinusError):
    """A service was addressed by a name that is none of its own."""


class CrossSite(CircinusError):
    """A page of another site sent a change by a browser; `violations` have the reason."""

    def __init__(self, violation: Violation) -> None:
        self.violations = (violation,)
        super().__init__(str(violation))


class ClientGone(CircinusError):
    """The client closed the connection and no longer waits for the answer."""


class NotJson(CircinusError):
    """A body is not JSON; `violations` have the reason."""

    def __init__(self, violations: Sequence[Violation]) -> None:
        self.violations = violations
        super().__init__(str(self.violations[0]))


class NotHttp(CircinusError):
    """What arrived is no request."""


class HeadTooLarge(CircinusError):
    """The head of a request is larger than any that means something here."""


class TooSlow(CircinusError):
    """A request arrives so slowly that its connection is worth more to others."""


class BodyTooLarge(CircinusError):
    """The body is larger than the operator allows."""


class WrongMediaType(CircinusError):
    """The declared type of the body is not accepted here."""


STATUS: Mapping[type[Exception], tuple[int, str]] = {
    NotHttp: (400, "Not HTTP"),
    NotJson: (400, "Not JSON"),
    WrongHost: (400, "Wrong host"),
    Unauthorised: (401, "Token missing or wrong"),
    CrossSite: (403, "From another site"),
    NotFound: (404, "Not found"),
    TooSlow: (408, "Too slow"),
    Conflict: (409, "Conflict with the present state"),
    BodyTooLarge: (413, "Body too large"),
    WrongMediaType: (415, "Wrong media type"),
    InvalidInput: (422, "Invalid input"),
    HeadTooLarge: (431, "Head too large"),
    QueueFull: (429, "Too many queries wait"),
    TooManyRequests: (429, "Too many requests wait"),
    ClientGone: (499, "The client went away"),
    OperatorFailed: (502, "An operator of the pipeline failed"),
    Unavailable: (503, "Unavailable for now"),
    DatabaseFull: (507, "Disk full"),
    CircinusError: (500, "Something went wrong"),
}
"""Error -> status and title. An error that is not listed has those of its nearest base."""


def answer_of(error: CircinusError, scope: Scope) -> Response:
    """Return what a request gets for an error of the project: its problem, or a page of it."""
    return _negotiated(problem_of(error, scope["path"]), scope)


def _negotiated(problem: JSONResponse, scope: Scope) -> Response:
    headers, path = Headers(scope=scope), scope["path"]
    part = "hx-request" in headers  # of a page: replaced by the script
    if path.startswith("/v1/") or not (part or "text/html" in headers.get("accept", "")):
        return problem
    details = ProblemDetails.model_validate_json(bytes(problem.body))
    template = "_problem.html" if part else "problem.html"
    response = page(template, {"problem": details}, status=problem.status_code)
    names = ("retry-after", "www-authenticate", "connection", "allow")
    response.headers.update({n: problem.headers[n] for n in names if n in problem.headers})
    return response


def problem_of(error: CircinusError, path: str) -> JSONResponse:
    """Return the problem document of an error of the project, with the headers that go with it."""
    status, title = next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)
    violations: Sequence[Violation] = getattr(error, "violations", ())
    headers = {}
    if isinstance(error, Unavailable):
        headers["Retry-After"] = str(max(1, ceil(error.retry_after_s)))
    elif isinstance(error, Unauthorised):
        headers["WWW-Authenticate"] = 'Bearer realm="circinus"'
    elif isinstance(error, TooSlow):
        headers["Connection"] = "close"
    return _problem(title, status, str(error), path, violations, headers)


def unforeseen(error: Exception, path: str) -> JSONResponse:
    """Log an unexpected error; return a problem document with the id of its log entry."""
    incident = secrets.token_hex(4)
    trouble(_LOG, "http.unforeseen", error=error, incident=incident, path=path)
    words = f"Something unforeseen happened; the service's log has it as incident {incident}."
    return _problem("Internal error", 500, words, path)


def _problem(
    title: str,
    status: int,
    detail: str,
    path: str,
    violations: Sequence[Violation] = (),
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    problem = ProblemDetails(
        title=title, status=status, detail=detail, instance=path, errors=list(violations)
    )
    content = problem.model_dump(mode="json")
    return JSONResponse(content, status, dict(headers or {}), media_type=MEDIA_TYPE)


def handle_errors(app: FastAPI) -> None:
    """Answer every error of an application by a problem document."""

    @app.exception_handler(CircinusError)
    async def on_ours(request: Request, error: CircinusError) -> Response:
        return answer_of(error, request.scope)

    @app.exception_handler(RequestValidationError)
    async def on_invalid(request: Request, error: RequestValidationError) -> Response:
        # FastAPI's first part of a path is where the value was: body, query or path.
        violations = violations_of(list(error.errors()), model=_body_of(request), skip=1)
        return answer_of(InvalidInput(violations), request.scope)

    @app.exception_handler(HTTPException)
    async def on_http(request: Request, error: HTTPException) -> Response:
        title, path = HTTPStatus(error.status_code).phrase, request.url.path
        detail = f"{request.method} {path}: {error.detail}"
        headers = dict(error.headers or {})
        if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
            headers["Allow"] = ", ".join(_allowed(request))
        problem = _problem(title, error.status_code, detail, path, headers=headers)
        return _negotiated(problem, request.scope)

    @app.exception_handler(Exception)
    async def on_unforeseen(request: Request, error: Exception) -> Response:
        return _negotiated(unforeseen(error, request.url.path), request.scope)


def _allowed(request: Request) -> list[str]:
    """Return the methods of a path by all of its routes; a route has only its own."""
    routes, scope = request.app.routes, dict(request.scope)
    return [
        method
        for method in _METHODS
        if any(each.matches({**scope, "method": method})[0] is Match.FULL for each in routes)
    ]


def _body_of(request: Request) -> type[BaseModel] | None:
    """Return the schema of the route's body; None when it has none."""
    route = request.scope.get("route")
    body = route.body_field if isinstance(route, APIRoute) else None
    kind: object = None if body is None else body.field_info.annotation
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None
