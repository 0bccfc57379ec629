"""Figures for monitors."""

from __future__ import annotations

from fastapi import APIRouter, Response

from api.metrics import MEDIA_TYPE, exposition
from api.routes.service import ServiceOf

router = APIRouter(tags=["service"])


@router.get("/metrics", response_class=Response)
async def metrics(service: ServiceOf) -> Response:
    """Give what the queues of all deployments do, in the text format of Prometheus."""
    text = exposition(service.deployer.figures())
    return Response(text, media_type=MEDIA_TYPE)
