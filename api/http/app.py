"""The HTTP application: routes behind the gate, errors as problem documents."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from circinus.api.bootstrap.planning import installed_version
from circinus.api.control.service import Service, running
from circinus.api.http.description import describe
from circinus.api.http.errors import handle_errors
from circinus.api.http.gate import Gate, Guard
from circinus.api.http.reference import serve_reference
from circinus.api.http.routes import datasets, events, pooling, queries, routing, service
from circinus.api.http.routes.service import end_streams, provide
from circinus.api.http.ui import (
    assets,
    changes,
    deployed,
    happenings,
    infrastructure,
    listing,
    query,
    schedule,
    submit,
)
from circinus.api.settings import Settings
from circinus.api.use_cases.deployer import Deployer
from circinus.api.use_cases.parts import ServiceParts
from circinus.deploy.runtime.heap import freeze_heap

_DESCRIPTION = "Plans compound AI pipelines, deploys the plans and serves requests to them."
_PAGES = (
    assets,
    listing,
    query,
    changes,
    deployed,
    happenings,
    schedule,
    infrastructure,
    submit,
)


def create_app(parts: ServiceParts, deployer: Deployer) -> FastAPI:
    """Yield the application; starting it starts the service, stopping it stops both of them."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with running(parts, deployer) as started:
            provide(app, started)
            freeze_heap()
            yield
            end_streams(app)

    return application(parts.settings, lifespan=lifespan)


def application_of(started: Service) -> FastAPI:
    """Return the application around a service that somebody else starts and stops."""
    app = application(started.parts.settings)
    provide(app, started)
    return app


def application(settings: Settings, *, lifespan: object = None) -> FastAPI:
    """Return the application around no service; what starts and stops with it is `lifespan`'s."""
    app = FastAPI(
        title="Circinus",
        version=installed_version("circinus"),
        description=_DESCRIPTION,
        docs_url=None,  # they would load scripts from elsewhere
        redoc_url=None,
        lifespan=lifespan,  # type: ignore[arg-type]  # FastAPI's own alias of it is private
        redirect_slashes=False,  # a path is a route's or nobody's
    )
    for routes in (queries, pooling, routing, datasets, events, service, *_PAGES):
        app.include_router(routes.router)
    serve_reference(app)
    describe(app, with_token=settings.token is not None)
    handle_errors(app)
    app.add_middleware(
        Gate,
        body_limit_bytes=settings.body_limit_bytes,
        dataset_limit_bytes=settings.dataset_limit_bytes,
    )
    app.add_middleware(Guard, **settings.guarded_by)
    return app
