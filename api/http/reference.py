"""The page at `/docs`: what the OpenAPI document says, for people, without a script."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

from fastapi import FastAPI
from fastapi.responses import HTMLResponse

from circinus.api.http.pages import page

_REFERENCE = "#/components/schemas/"


def serve_reference(app: FastAPI) -> None:
    """Let an application tell what it offers; call it when it has its routes."""

    @app.get("/docs", include_in_schema=False, response_class=HTMLResponse)
    def docs() -> HTMLResponse:
        document = app.openapi()
        found = groupby(_operations(document), key=lambda each: each["section"])
        chapters = [(name, list(operations)) for name, operations in found]
        return page("reference.html", {"document": document, "chapters": chapters})


def _operations(document: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for path, ways in document["paths"].items():
        for method, operation in ways.items():
            yield {
                "section": operation["tags"][0],
                "method": method,
                "path": path,
                "description": operation["description"],
                "parameters": [
                    (each["name"], each["in"])
                    for each in operation.get("parameters", ())
                    if each["in"] != "path"
                ],
                "schemas": [*_schemas(operation, document["components"]["schemas"])],
            }


def _schemas(
    operation: Mapping[str, Any], schemas: Mapping[str, Any]
) -> Iterator[tuple[str, str, str]]:
    asked = operation.get("requestBody", {}).get("content", {})
    given = [r.get("content", {}) for s, r in operation["responses"].items() if s[0] == "2"]
    for what, content in (("Body", asked), *(("Answer", each) for each in given)):
        for kind in content.values():
            name = kind.get("schema", {}).get("$ref", "").removeprefix(_REFERENCE)
            if name:
                yield what, name, json.dumps(schemas[name], indent=2, ensure_ascii=False)
