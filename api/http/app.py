"""The HTTP application: routes behind the gate, errors as problem documents."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from fastapi import FastAPI
from pydantic import ValidationError

from circinus.api.bootstrap.planning import installed_version
from circinus.api.bootstrap.serving import require_fit
from circinus.api.control.service import Service, running
from circinus.api.event_log import start_event_log
from circinus.api.http.errors import handle_errors
from circinus.api.http.gate import Gate
from circinus.api.http.routes import datasets, queries, service
from circinus.api.http.routes.service import provide
from circinus.api.schemas.base import ProblemDetails
from circinus.api.schemas.faults import faults_of
from circinus.api.settings import Settings
from circinus.pipelines.errors import InvalidInput

_DESCRIPTION = "Plans compound AI pipelines, deploys the plans and serves requests to them."


def create_app(settings: Settings | None = None) -> FastAPI:
    """Give the application; starting it starts the service, stopping it stops the service.

    Settings of None are read from the environment.
    """
    chosen = settings or Settings()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        start_event_log(chosen.log_level)
        async with running(chosen) as started:
            provide(app, started)
            yield

    return _application(chosen, lifespan=lifespan)


def application_of(started: Service) -> FastAPI:
    """Give the application around a service that somebody else starts and stops."""
    app = _application(started.parts.settings, lifespan=None)
    provide(app, started)
    return app


def _application(settings: Settings, *, lifespan: object) -> FastAPI:
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
        token=settings.token_text,
        body_limit_bytes=settings.body_limit_bytes,
        dataset_limit_bytes=settings.dataset_limit_bytes,
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


def main() -> None:
    """Run the service as the environment says; what it cannot start with is a line, and exit 2."""
    try:
        settings = Settings()
        require_fit(settings)
    except (ValidationError, InvalidInput) as error:
        faults = (
            error.faults if isinstance(error, InvalidInput) else faults_of(error, model=Settings)
        )
        sys.stderr.writelines(f"error: {fault}\n" for fault in faults)
        raise SystemExit(2) from None
    serve(settings)


if __name__ == "__main__":
    main()
