"""Data sets of users."""

from __future__ import annotations

from asyncio import Lock

from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool

from circinus.api.http.bodies import UPLOADS
from circinus.api.http.description import header, problems
from circinus.api.http.routes.paths import DATASET
from circinus.api.http.routes.service import ServiceOf
from circinus.api.schemas.service import DatasetList, DatasetView
from circinus.api.use_cases.datasets import dataset_views, forget, take_in

router = APIRouter(prefix="/v1/datasets", tags=["datasets"])
_CREATED = 201
_ONE = Lock()  # unpacked at a time: others wait without a thread
_BODIES = {kind: {"schema": {"type": "string", "format": "binary"}} for kind in UPLOADS}
_WHERE = header("Location", "Path of the data set.")
_NEW = {"model": DatasetView, "description": "It is new", **_WHERE}


@router.post(
    "",
    responses={200: _WHERE, _CREATED: _NEW},
    openapi_extra={"requestBody": {"content": _BODIES, "required": True}},
)
async def upload(request: Request, response: Response, service: ServiceOf) -> DatasetView:
    """Hand over JSON lines, or a zip of a folder. 201 when it is new, 200 when it was known."""
    parts, content = service.parts, await request.body()
    content_type = request.headers["content-type"]

    def take() -> tuple[DatasetView, bool]:
        dataset, new = take_in(
            parts.datasets,
            UPLOADS[content_type.partition(";")[0].strip().lower()],
            content,
            parts.settings,
            parts.clock,
        )
        return dataset_views(parts.datasets, dataset)[0], new

    async with _ONE:
        view, new = await run_in_threadpool(take)
    response.headers["Location"] = f"/v1/datasets/{view.id}"
    if new:
        response.status_code = _CREATED
    return view


@router.get("")
def every(service: ServiceOf) -> DatasetList:
    """List the data sets, the newest first."""
    datasets = service.parts.datasets
    return DatasetList(items=dataset_views(datasets, *datasets.all()))


@router.get(DATASET, responses=problems(404))
def one(dataset_id: str, service: ServiceOf) -> DatasetView:
    """Return a data set: its size, its inputs, who uses it."""
    datasets = service.parts.datasets
    return dataset_views(datasets, datasets.get(dataset_id))[0]


@router.delete(DATASET, status_code=204, responses=problems(404, 409))
def delete(dataset_id: str, service: ServiceOf) -> None:
    """Delete a data set; 409 while a query uses it."""
    parts = service.parts
    forget(parts.datasets, dataset_id, parts.settings.datasets)
