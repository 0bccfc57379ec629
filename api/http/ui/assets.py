"""The files that pages load: for everybody, and kept by browsers until they change."""

from __future__ import annotations

from mimetypes import guess_type
from typing import Annotated

from fastapi import APIRouter, Query, Response

from circinus.api.http.pages import STATIC, static_files
from circinus.api.store.records import NotFound

router = APIRouter(include_in_schema=False)
_FOR_EVER, _ASK_AGAIN = "public, max-age=31536000, immutable", "no-cache"


@router.get(STATIC + "{name}")
def asset(name: str, v: Annotated[str, Query(max_length=40)] = "") -> Response:
    """Return a file; NotFound if there is none of that name."""
    if name not in static_files():
        raise NotFound("file", name)
    content, version = static_files()[name]
    kind = guess_type(name)[0] or "text/plain"
    headers = {
        "Cache-Control": _FOR_EVER if v == version else _ASK_AGAIN,
        "X-Content-Type-Options": "nosniff",
    }
    return Response(content, media_type=kind, headers=headers)
