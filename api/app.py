"""The HTTP application: routes behind the gate, errors as problem documents."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from fastapi import FastAPI

from api.auth import Guard
from api.errors import handle_errors
from api.event_log import start_event_log
from api.gate import Gate
from api.routes import catalogue, deployments, metrics, plans, queries, questions, schedule
from api.routes.catalogue import service_version
from api.routes.service import provide
from api.schemas import Problem
from api.service import Service, running
from api.settings import Settings

_DESCRIPTION = "Plans compound AI pipelines, deploys the plans and serves requests to them."


def create_app(settings: Settings | None = None) -> FastAPI:
    """Give the application; starting it starts the service, stopping it stops the service.

    Args:
        settings: None reads them from the environment.
    """
    chosen = Settings() if settings is None else settings

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        start_event_log(chosen.log_level)
        async with running(chosen) as service:
            provide(app, service)
            yield

    return _application(chosen, lifespan=lifespan)


def application_of(service: Service) -> FastAPI:
    """Give the application around a service that somebody else starts and stops."""
    app = _application(service.parts.settings, lifespan=None)
    provide(app, service)
    return app


def _application(settings: Settings, *, lifespan: object) -> FastAPI:
    app = FastAPI(
        title="Circinus",
        version=service_version(),
        description=_DESCRIPTION,
        lifespan=lifespan,  # type: ignore[arg-type]  # FastAPI's own alias of it is private
        responses={"default": {"model": Problem, "description": "A problem document"}},
    )
    for routes in (queries, plans, questions, schedule, deployments, catalogue, metrics):
        app.include_router(routes.router)
    handle_errors(app)
    app.add_middleware(
        Gate,
        guard=Guard(token=settings.token_text),
        body_limit_bytes=settings.body_limit_bytes,
    )
    return app


def serve(settings: Settings) -> None:
    """Run the service until it is interrupted."""
    start_event_log(settings.log_level)
    uvicorn.run(
        create_app(settings),
        host=settings.host,
        port=settings.port,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=5,
    )


if __name__ == "__main__":
    serve(Settings())
