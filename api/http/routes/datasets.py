"""Data sets of users."""

from __future__ import annotations

from asyncio import Lock
from typing import Annotated

from fastapi import APIRouter, Header, Request, Response
from starlette.concurrency import run_in_threadpool

from circinus.api.http.gate import UPLOADS
from circinus.api.http.routes.service import ServiceOf
from circinus.api.schemas.datasets import DatasetList, DatasetView
from circinus.api.use_cases.datasets import forget, take_in, told

router = APIRouter(prefix="/v1/datasets", tags=["datasets"])
_CREATED = 201
_ONE = Lock()  # unpacked at a time: others wait without a thread
_BODIES = {kind: {"schema": {"type": "string", "format": "binary"}} for kind in UPLOADS}


@router.post("", status_code=200, openapi_extra={"requestBody": {"content": _BODIES}})
async def upload(
    request: Request,
    response: Response,
    service: ServiceOf,
    content_type: Annotated[str, Header()] = "",
) -> DatasetView:
    """Hand over JSON lines, or a zip of a folder. 201 when it is new, 200 when it was known."""
    parts, content = service.parts, await request.body()

    def take() -> tuple[DatasetView, bool]:
        kept, new = take_in(
            parts.datasets,
            UPLOADS[content_type.partition(";")[0].strip().lower()],
            content,
            parts.settings,
            parts.clock,
        )
        return told(parts.datasets, kept)[0], new

    async with _ONE:
        view, new = await run_in_threadpool(take)
    response.headers["Location"] = f"/v1/datasets/{view.id}"
    if new:
        response.status_code = _CREATED
    return view


@router.get("")
def every(service: ServiceOf) -> DatasetList:
    """List the data sets, the newest first."""
    kept = service.parts.datasets
    return DatasetList(items=told(kept, *kept.all()))


@router.get("/{dataset_id}")
def one(dataset_id: str, service: ServiceOf) -> DatasetView:
    """Give a data set: its size, its inputs, who uses it."""
    kept = service.parts.datasets
    return told(kept, kept.get(dataset_id))[0]


@router.delete("/{dataset_id}", status_code=204)
def delete(dataset_id: str, service: ServiceOf) -> None:
    """Forget a data set; 409 while a query uses it."""
    parts = service.parts
    forget(parts.datasets, dataset_id, parts.settings.datasets)
