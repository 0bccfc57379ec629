"""The HTTP application: routes behind authentication, errors as problem documents."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from itertools import groupby
from typing import Any

from fastapi import FastAPI
from fastapi.responses import HTMLResponse

from circinus.api.bootstrap.planning import installed_version
from circinus.api.control.service import Service, running
from circinus.api.http.authentication import Authentication
from circinus.api.http.bodies import BodyLimits
from circinus.api.http.description import describe
from circinus.api.http.errors import handle_errors
from circinus.api.http.pages import page
from circinus.api.http.routes import datasets, events, pooling, queries, routing, service
from circinus.api.http.routes.service import end_streams, provide
from circinus.api.http.ui import (
    changes,
    deployed,
    frame,
    infrastructure,
    listing,
    query,
    schedule,
    submit,
)
from circinus.api.http.ui import events as event_pages
from circinus.api.settings import Settings
from circinus.api.use_cases.deployer import Deployer
from circinus.api.use_cases.parts import ServiceParts
from circinus.deploy.runtime.heap import freeze_heap

_DESCRIPTION = "Plans compound AI pipelines, deploys the plans and serves requests to them."
_PAGES = (
    listing,
    query,
    changes,
    deployed,
    frame,
    event_pages,
    schedule,
    infrastructure,
    submit,
)


def create_app(parts: ServiceParts, deployer: Deployer) -> FastAPI:
    """Return the application; starting it starts the service, stopping it stops both of them."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with running(parts, deployer) as started:
            provide(app, started)
            freeze_heap()
            yield
            end_streams(app)

    return application(parts.settings, lifespan=lifespan)


def application_of(started: Service) -> FastAPI:
    """Return the application around a service that the caller starts and stops."""
    app = application(started.parts.settings)
    provide(app, started)
    return app


def application(settings: Settings, *, lifespan: object = None) -> FastAPI:
    """Return the application around no service; `lifespan` starts and stops one."""
    app = FastAPI(
        title="Circinus",
        version=installed_version("circinus"),
        description=_DESCRIPTION,
        docs_url=None,  # they would load scripts from elsewhere
        redoc_url=None,
        lifespan=lifespan,  # type: ignore[arg-type]  # FastAPI's own alias of it is private
        redirect_slashes=False,  # a path matches a route exactly or none
    )
    for routes in (queries, pooling, routing, datasets, events, service, *_PAGES):
        app.include_router(routes.router)
    serve_reference(app)
    describe(app, with_token=settings.token is not None)
    handle_errors(app)
    app.add_middleware(
        BodyLimits,
        body_limit_bytes=settings.body_limit_bytes,
        dataset_limit_bytes=settings.dataset_limit_bytes,
    )
    app.add_middleware(Authentication, **settings.guarded_by)
    return app


_REFERENCE = "#/components/schemas/"


def serve_reference(app: FastAPI) -> None:
    """Serve the reference page of an application; call it when it has its routes."""

    @app.get("/docs", include_in_schema=False, response_class=HTMLResponse)
    def docs() -> HTMLResponse:
        document = app.openapi()
        groups = groupby(_operations(document), key=lambda each: each["section"])
        chapters = [(name, list(operations)) for name, operations in groups]
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
    body = operation.get("requestBody", {}).get("content", {})
    answers = [r.get("content", {}) for s, r in operation["responses"].items() if s[0] == "2"]
    for what, content in (("Body", body), *(("Answer", each) for each in answers)):
        for kind in content.values():
            name = kind.get("schema", {}).get("$ref", "").removeprefix(_REFERENCE)
            if name:
                yield what, name, json.dumps(schemas[name], indent=2, ensure_ascii=False)
