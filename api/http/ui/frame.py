"""What every page of the service has around its content, and how forms arrive.

Pages get their data as routes do, by use cases and `QueriesOf`, never through HTTP.
"""

from __future__ import annotations

from collections.abc import Mapping
from mimetypes import guess_type
from typing import Annotated
from urllib.parse import parse_qsl

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import HTMLResponse

from circinus.api.control.service import Service
from circinus.api.http.pages import STATIC, page, static_files
from circinus.api.store.records import NotFound
from circinus.pipelines.errors import InvalidInput

ALL_EVENTS = "/v1/events"
_SEE_OTHER = 303
_MOST_FIELDS = 500


def all_events(service: Service) -> str:
    """Return the path of all events from now on; call it before reading what a page shows."""
    return f"{ALL_EVENTS}?after={service.parts.store.events.latest()}"


def framed(
    template: str,
    service: Service,
    context: Mapping[str, object],
    *,
    section: str = "",
    events: str = ALL_EVENTS,
) -> HTMLResponse:
    """Return a page that extends `live.html`: with navigation and a stream of events.

    `section` is where it is in `pages.SECTIONS`; an empty path of `events` is none.
    """
    with_token = service.parts.settings.token is not None
    return page(template, {**context, "stream": events, "with_token": with_token}, section=section)


async def _form(request: Request) -> Mapping[str, str]:
    try:
        text = (await request.body()).decode("ascii")
        pairs = parse_qsl(
            text, keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS
        )
    except ValueError as error:
        rule = f"must be a form of at most {_MOST_FIELDS} fields, percent-encoded UTF-8"
        raise InvalidInput.of("body", rule, str(error)) from error
    return {name: value.strip() for name, value in pairs}


Form = Annotated[Mapping[str, str], Depends(_form)]
"""What a form holds: field -> its last value, without spaces around it; InvalidInput if there is
none. A page of another site cannot send one: see `api.http.authentication`."""


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
