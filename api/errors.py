"""The one table from errors to HTTP: every problem document (RFC 9457) is made here.

Errors of the edge itself are declared here too; all others come from below, where
nobody knows of HTTP.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from math import ceil

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from api.event_log import trouble
from api.schemas import FaultView, Problem, faults_of
from api.services.submission import QueueFull
from api.store.store import Conflict, NotFound
from api.strict_json import NotJson
from deploy.errors import TooManyRequests
from pipelines.errors import CircinusError, Fault, InvalidInput, OperatorFailed, Unavailable

MEDIA_TYPE = "application/problem+json"
_LOG = logging.getLogger(__name__)


class Unauthorised(CircinusError):
    """The token is missing or wrong."""


class WrongHost(CircinusError):
    """A service without a token was addressed by a name that is not loopback."""


class ClientGone(CircinusError):
    """The client closed the connection: nobody waits for the answer."""


class BodyTooLarge(CircinusError):
    """The body is larger than the operator allows."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"body must have at most {limit} bytes, got more.")


class WrongMediaType(CircinusError):
    """The body is said to be something else than JSON."""

    def __init__(self, media_type: str) -> None:
        super().__init__(f"Content-Type must be application/json, got {media_type!r}.")


STATUS: Mapping[type[Exception], tuple[int, str]] = {
    NotJson: (400, "Not JSON"),
    WrongHost: (400, "Wrong host"),
    Unauthorised: (401, "Token missing or wrong"),
    NotFound: (404, "Not found"),
    Conflict: (409, "Conflict with the present state"),
    BodyTooLarge: (413, "Body too large"),
    WrongMediaType: (415, "Body must be JSON"),
    InvalidInput: (422, "Invalid input"),
    QueueFull: (429, "Too many queries wait"),
    TooManyRequests: (429, "Too many requests wait"),
    ClientGone: (499, "The client went away"),
    OperatorFailed: (502, "An operator of the pipeline failed"),
    Unavailable: (503, "Unavailable for now"),
    CircinusError: (500, "Something went wrong"),
}
"""Error -> status and title. An error that is not listed has those of its nearest base."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """A problem document with the headers that go with it.

    Attributes:
        problem: The document.
        headers: Beside the media type.
    """

    problem: Problem
    headers: Mapping[str, str] = field(default_factory=dict)

    def response(self) -> JSONResponse:
        """Give the HTTP response."""
        return JSONResponse(
            self.problem.model_dump(mode="json"),
            status_code=self.problem.status,
            headers=dict(self.headers),
            media_type=MEDIA_TYPE,
        )


def trouble_of(error: CircinusError, path: str) -> Trouble:
    """Give the problem document of an error of the project."""
    status, title = next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)
    problem = Problem(
        title=title,
        status=status,
        detail=str(error),
        instance=path,
        errors=[FaultView.of(fault) for fault in _faults(error)],
    )
    return Trouble(problem=problem, headers=_headers(error))


def _faults(error: CircinusError) -> tuple[Fault, ...]:
    match error:
        case InvalidInput():
            return error.faults
        case NotJson():
            return (error.fault,)
        case Conflict():
            return (Fault(error.field, error.rule, error.value),)
        case NotFound():
            return (Fault.of(error.kind, "must exist", error.id),)
        case _:
            return ()


def _headers(error: CircinusError) -> dict[str, str]:
    match error:
        case Unavailable():
            return {"Retry-After": str(max(1, ceil(error.retry_after_s)))}
        case Unauthorised():
            return {"WWW-Authenticate": 'Bearer realm="circinus"'}
        case _:
            return {}


def handle_errors(app: FastAPI) -> None:
    """Answer every error of an application by a problem document."""
    app.add_exception_handler(CircinusError, _on_ours)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(Exception, _on_unforeseen)


async def _on_ours(request: Request, error: Exception) -> JSONResponse:
    if not isinstance(error, CircinusError):
        raise error
    return trouble_of(error, request.url.path).response()


async def _on_invalid(request: Request, error: Exception) -> JSONResponse:
    if not isinstance(error, RequestValidationError):
        raise error
    # FastAPI's first part of a path is where the value was: body, query or path.
    invalid = InvalidInput(faults_of(list(error.errors()), model=_body_of(request), skip=1))
    return trouble_of(invalid, request.url.path).response()


def _body_of(request: Request) -> type[BaseModel] | None:
    """Give the schema of the route's body; None when it has none."""
    route = request.scope.get("route")
    body = route.body_field if isinstance(route, APIRoute) else None
    annotation: object = None if body is None else body.field_info.annotation
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return None


async def _on_http(request: Request, error: Exception) -> JSONResponse:
    if not isinstance(error, HTTPException):
        raise error
    title = HTTPStatus(error.status_code).phrase
    problem = Problem(
        title=title,
        status=error.status_code,
        detail=f"{request.method} {request.url.path}: {error.detail}",
        instance=request.url.path,
    )
    return Trouble(problem=problem, headers=error.headers or {}).response()


async def _on_unforeseen(request: Request, error: Exception) -> JSONResponse:
    incident = secrets.token_hex(4)
    trouble(_LOG, "http.unforeseen", error=error, incident=incident, path=request.url.path)
    problem = Problem(
        title="Internal error",
        status=500,
        detail=f"Something unforeseen happened; the service's log has it as incident {incident}.",
        instance=request.url.path,
    )
    return Trouble(problem=problem).response()
