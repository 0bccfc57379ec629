"""What the service offers: pipelines, infrastructure, its method, its own health."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from fastapi import APIRouter

from api.routes.service import ServiceOf
from api.schemas import (
    EmulationBody,
    HealthView,
    InfrastructureView,
    MachinesBody,
    MethodView,
    PipelineList,
    infrastructure_view,
    method_view,
    pipeline_view,
    to_links,
)
from pipelines.registry import listed

router = APIRouter(tags=["catalogue"])


@router.get("/v1/pipelines")
def pipelines(service: ServiceOf) -> PipelineList:
    """Give the registered pipelines with their operators and knobs, and what keeps one away."""
    catalogue = service.parts.catalogue
    return PipelineList(
        items=[pipeline_view(one) for one in listed(catalogue.names, catalogue.pipeline)]
    )


@router.get("/v1/infrastructure")
def infrastructure(service: ServiceOf) -> InfrastructureView:
    """Give the tiers, machines and links as they are now."""
    return infrastructure_view(service.capacity.now())


@router.patch("/v1/infrastructure")
def set_machines(body: MachinesBody, service: ServiceOf) -> InfrastructureView:
    """Let machines of tiers come or go; the schedule follows within a moment."""
    return infrastructure_view(service.capacity.set_machines(body.machines))


@router.get("/v1/emulation")
async def emulation(service: ServiceOf) -> InfrastructureView:
    """Give the infrastructure with the links that this computer imitates."""
    return infrastructure_view(service.emulation.now())


@router.patch("/v1/emulation")
async def set_emulation(body: EmulationBody, service: ServiceOf) -> InfrastructureView:
    """Imitate thinner or thicker links, which nobody who plans hears of: to try a drift out."""
    return infrastructure_view(service.emulation.set_links(to_links(body)))


@router.get("/v1/method")
def method(service: ServiceOf) -> MethodView:
    """Give how queries are planned that do not say, and what schedules and dispatches."""
    return method_view(service.method)


@router.get("/healthz")
def health(service: ServiceOf) -> HealthView:
    """Give whether the service is up. Needs no token."""
    service.parts.schedules.revision()  # raises when the database is gone
    return HealthView(version=service_version())


def service_version() -> str:
    """Give the version of the installed service."""
    try:
        return version("circinus")
    except PackageNotFoundError:  # run from a folder that was never installed
        return "unknown"
