"""The OpenAPI document: what FastAPI makes of the routes, and what is true of all of them.

The one rule: the document describes every answer. Routes declare their own errors by `problems`;
a status that any request may get is one more in `_OF_ALL`, `_OF_BODIES` ...
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from fastapi import FastAPI
from pydantic.json_schema import models_json_schema

from circinus.api.http.authentication import is_guarded
from circinus.api.http.errors import MEDIA_TYPE, STATUS
from circinus.api.schemas.base import ProblemDetails
from circinus.api.schemas.query import LARGEST_SEED
from circinus.pipelines.checks import NAME

Document = dict[str, Any]

_OF_ALL = (400, 408, 413, 431, 500, 503)
_OF_CHANGES = (403, 507)
_OF_BODIES = (415, 422)  # also where none is required: a body that is sent is checked
_OF_PARAMETERS = (422,)  # in the query or a header; a wrong path is a 404
_OF_TOKENS = (401,)
_WITH_BODY = frozenset({"post", "put", "patch"})
_SAFE = frozenset({"get", "head"})
_PARTS = "#/components/schemas/{model}"
_SCHEME = "Token"
_TOKEN = (
    "The token of the service. The cookie that `POST /login` sets in a browser serves as well."
)
_SECONDS = {"description": "Seconds.", "required": True, "schema": {"type": "integer"}}
_HEADERS: Mapping[int, Mapping[str, object]] = {
    401: {"WWW-Authenticate": {"required": True, "schema": {"type": "string"}}},
    429: {"Retry-After": _SECONDS},
    503: {"Retry-After": _SECONDS},
}
_OF_FILES = ("folder", "jsonl")  # in the data of a query
_OF_FASTAPI = ("HTTPValidationError", "ValidationError")


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the errors with these statuses for a route's `responses`."""
    return {status: _problem(status) for status in statuses}


def header(name: str, words: str, *, required: bool = True) -> dict[str, Any]:
    """Return the description of a text header for a route's `responses`."""
    description = {"description": words, "required": required, "schema": {"type": "string"}}
    return {"headers": {name: description}}


def describe(app: FastAPI, *, with_token: bool) -> None:
    """Describe all answers of an application, and the token where it requires one."""
    made = app.openapi
    app.openapi = cache(lambda: _completed(made(), with_token))  # type: ignore[method-assign]  # FastAPI's own way


def _problem(status: int) -> dict[str, Any]:
    titles = dict.fromkeys(title for kind, title in STATUS.values() if kind == status)
    content = {MEDIA_TYPE: {"schema": {"$ref": _PARTS.format(model=ProblemDetails.__name__)}}}
    headers = {"headers": _HEADERS[status]} if status in _HEADERS else {}
    return {"description": ", or ".join(titles), "content": content, **headers}


def _completed(document: Document, with_token: bool) -> Document:
    parts = document["components"]["schemas"]
    for path, method, operation in _operations(document):
        for parameter in operation.get("parameters", ()):
            parameter["schema"] = _without_null(parameter["schema"])
        operation["responses"].pop("422", None)  # FastAPI's own form of errors
        guarded = with_token and is_guarded(path)
        if guarded:
            operation["security"] = [{_SCHEME: []}]
        statuses = (
            *_OF_ALL,
            *(_OF_TOKENS if guarded else ()),
            *(_OF_CHANGES if method not in _SAFE else ()),
            *(_OF_BODIES if method in _WITH_BODY else ()),
            *(_OF_PARAMETERS if _has_parameters(operation) else ()),
        )
        errors = {str(status): _problem(status) for status in statuses}
        operation["responses"] = dict(sorted({**operation["responses"], **errors}.items()))
    for name in _OF_FASTAPI:
        parts.pop(name, None)
    _, own = models_json_schema([(ProblemDetails, "serialization")], ref_template=_PARTS)
    parts |= own["$defs"]
    if with_token:
        scheme = {"type": "http", "scheme": "bearer", "description": _TOKEN}
        document["components"]["securitySchemes"] = {_SCHEME: scheme}
    _leave_out_the_command_line(parts)
    _restate_whole_numbers(parts)
    return document


def _operations(document: Document) -> Iterator[tuple[str, str, Document]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def _has_parameters(operation: Document) -> bool:
    return any(each["in"] != "path" for each in operation.get("parameters", ()))


def _without_null(schema: Document) -> Document:
    """Return the schema of a parameter, which is text or left out."""
    choices = [choice for choice in schema.get("anyOf", ()) if choice != {"type": "null"}]
    if len(choices) != 1:
        return schema
    only: Document = choices[0]
    return only | {name: part for name, part in schema.items() if name != "anyOf"}


def _leave_out_the_command_line(parts: Document) -> None:
    """Restate fields of files and modules as null: a service does not read them."""
    parts["QueryRequest"]["properties"]["pipeline"]["pattern"] = f"^{NAME}$"
    words = "Of the command line: labels for a judge are taken by `circinus plan`."
    parts["QueryRequest"]["properties"]["metric"] = {"type": "null", "description": words}
    source = parts["DataSource"]
    for name in _OF_FILES:
        words = "Of the command line: a service reads no files."
        source["properties"][name] = {"type": "null", "description": words}
    source["oneOf"] = [
        choice for choice in source["oneOf"] if not {*choice["required"]} & {*_OF_FILES}
    ]


def _restate_whole_numbers(part: object) -> None:
    """Write the bounds of whole numbers as such: FastAPI's are floats, of which none is 2^63-1."""
    if isinstance(part, list):
        for each in part:
            _restate_whole_numbers(each)
    elif isinstance(part, dict):
        if part.get("type") == "integer":
            part |= {
                bound: min(int(part[bound]), LARGEST_SEED)
                for bound in ("minimum", "maximum")
                if bound in part
            }
        for each in part.values():
            _restate_whole_numbers(each)
