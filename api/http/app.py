"""The HTTP application: routes behind the gate, errors as problem documents."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from circinus.api.bootstrap.planning import installed_version
from circinus.api.control.service import Service, running
from circinus.api.event_log import start_event_log
from circinus.api.http.errors import handle_errors
from circinus.api.http.gate import Gate, Guard
from circinus.api.http.routes import datasets, queries, service
from circinus.api.http.routes.service import provide
from circinus.api.schemas.base import ProblemDetails
from circinus.api.settings import Settings
from circinus.api.use_cases.deployer import Deployer
from circinus.deploy.runtime.heap import freeze_heap

_DESCRIPTION = "Plans compound AI pipelines, deploys the plans and serves requests to them."


def create_app(settings: Settings, deployer: Deployer) -> FastAPI:
    """Give the application; starting it starts the service, stopping it stops both of them."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        start_event_log(settings.log_level)
        async with running(settings, deployer) as started:
            provide(app, started)
            freeze_heap()
            yield

    return application(settings, lifespan=lifespan)


def application_of(started: Service) -> FastAPI:
    """Give the application around a service that somebody else starts and stops."""
    app = application(started.parts.settings)
    provide(app, started)
    return app


def application(settings: Settings, *, lifespan: object = None) -> FastAPI:
    """Give the application around no service; what starts and stops with it is `lifespan`'s."""
    app = FastAPI(
        title="Circinus",
        version=installed_version("circinus"),
        description=_DESCRIPTION,
        lifespan=lifespan,  # type: ignore[arg-type]  # FastAPI's own alias of it is private
        responses={"default": {"model": ProblemDetails, "description": "A problem document"}},
    )
    for routes in (queries, datasets, service):
        app.include_router(routes.router)
    handle_errors(app)
    app.add_middleware(
        Gate,
        body_limit_bytes=settings.body_limit_bytes,
        dataset_limit_bytes=settings.dataset_limit_bytes,
    )
    app.add_middleware(Guard, token=settings.token_text)
    return app
