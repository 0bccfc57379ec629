"""The page at `/docs`: what the OpenAPI document says, for people, without a script."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from fastapi import FastAPI
from fastapi.responses import HTMLResponse

from circinus.api.http.pages import page

_REFERENCE = "#/components/schemas/"


def serve_reference(app: FastAPI) -> None:
    """Let an application tell what it offers; call it when it has its routes."""

    @app.get("/docs", include_in_schema=False, response_class=HTMLResponse)
    def docs() -> HTMLResponse:
        return page("Circinus: HTTP interface", "".join(_body(app.openapi())))


def _body(document: Mapping[str, Any]) -> Iterator[str]:
    told = document["info"]
    yield f"<h1>{escape(told['title'])} {escape(told['version'])}</h1>"
    yield f"<p>{escape(told['description'])}</p>"
    yield '<p>For programs it is all in <a href="/openapi.json">openapi.json</a>.</p>'
    section = ""
    for path, ways in document["paths"].items():
        for method, operation in ways.items():
            if (tag := operation["tags"][0]) != section:
                section = tag
                yield f"<h2>{escape(tag.capitalize())}</h2>"
            yield f"<h3><code>{method.upper()} {escape(path)}</code></h3>"
            yield f"<p>{escape(operation['description'])}</p>"
            yield from _parameters(operation)
            yield from _schemas(operation, document["components"]["schemas"])


def _parameters(operation: Mapping[str, Any]) -> Iterator[str]:
    found = [each for each in operation.get("parameters", ()) if each["in"] != "path"]
    if found:
        words = (f"<code>{escape(each['name'])}</code> ({escape(each['in'])})" for each in found)
        yield f"<p>Takes {', '.join(words)}.</p>"


def _schemas(operation: Mapping[str, Any], schemas: Mapping[str, Any]) -> Iterator[str]:
    asked = operation.get("requestBody", {}).get("content", {})
    given = [r.get("content", {}) for s, r in operation["responses"].items() if s[0] == "2"]
    for what, content in (("Body", asked), *(("Answer", each) for each in given)):
        for kind in content.values():
            name = kind.get("schema", {}).get("$ref", "").removeprefix(_REFERENCE)
            if name:
                text = escape(json.dumps(schemas[name], indent=2, ensure_ascii=False))
                head = f"<summary>{what}: {escape(name)}</summary>"
                yield f"<details>{head}<pre>{text}</pre></details>"
