"""How a handler gets at the service that its application belongs to."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, FastAPI, Request

from api.service import Service
from api.shown_schedule import ShownSchedule
from pipelines.errors import Unavailable


def provide(app: FastAPI, service: Service) -> None:
    """Let the handlers of an application use a service."""
    app.state.service = service
    app.state.schedule = ShownSchedule(service)


def _service_of(request: Request) -> Service:
    service = getattr(request.app.state, "service", None)
    if not isinstance(service, Service):
        raise Unavailable("the service is starting", retry_after_s=1.0)
    return service


ServiceOf = Annotated[Service, Depends(_service_of)]


def _schedule_of(request: Request, _service: ServiceOf) -> ShownSchedule:
    shown: ShownSchedule = request.app.state.schedule
    return shown


ScheduleOf = Annotated[ShownSchedule, Depends(_schedule_of)]
"""The schedule in force, rendered."""
