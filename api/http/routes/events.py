"""Events: a page of them, or an endless stream."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request, Response

from circinus.api.control.feed import Feed
from circinus.api.http.bodies import JSON
from circinus.api.http.description import problems
from circinus.api.http.event_stream import STREAM, EventStream, wants_stream
from circinus.api.http.routes.paths import QUERY
from circinus.api.http.routes.service import FeedOf, ServiceOf
from circinus.api.schemas.events import LARGEST_ID, EventPage, EventsRequest
from circinus.api.store.events import EventLog

router = APIRouter(prefix="/v1", tags=["events"])
_STREAMED: Mapping[int | str, dict[str, Any]] = {
    200: {"content": {STREAM: {"schema": {"type": "string"}}}}
}
LastEventId = Annotated[int | None, Header(ge=0, le=LARGEST_ID)]


@router.get("/events", response_model=EventPage, responses={**_STREAMED})
async def every(
    request: Request,
    feed: FeedOf,
    page_request: Annotated[EventsRequest, Query()],
    last_event_id: LastEventId = None,
) -> Response:
    """Return the events after one, or, without it, the latest; of the whole service.

    With `Accept: text/event-stream` an endless stream, by default from now on: each frame has the
    event's id, its kind and the event as JSON. `Last-Event-ID` precedes `after`. Where events
    after it were dropped, or it is none of this service's, the first frame is `reset`, and all
    stored ones follow.
    """
    after = page_request.after if last_event_id is None else last_event_id
    if not wants_stream(request.headers):
        return await asyncio.to_thread(_page, feed.events, after, page_request.limit)
    if after is None:
        after = await asyncio.to_thread(feed.events.latest)
    return await _stream(feed, after)


@router.get(f"{QUERY}/events", response_model=EventPage, responses={**_STREAMED, **problems(404)})
async def of_query(
    query_id: str,
    request: Request,
    service: ServiceOf,
    feed: FeedOf,
    page_request: Annotated[EventsRequest, Query()],
    last_event_id: LastEventId = None,
) -> Response:
    """Return the events of a query, by default from its beginning.

    With `Accept: text/event-stream` an endless stream, as that of the whole service.
    """
    await asyncio.to_thread(service.parts.store.state, query_id)
    after = (page_request.after or 0) if last_event_id is None else last_event_id
    if wants_stream(request.headers):
        return await _stream(feed, after, query_id)
    return await asyncio.to_thread(_page, feed.events, after, page_request.limit, query_id)


async def _stream(feed: Feed, after: int, query_id: str | None = None) -> Response:
    dropped = await asyncio.to_thread(feed.events.is_dropped, after, query_id)
    return EventStream(feed, 0 if dropped else after, query_id, dropped=dropped)


def _page(
    events: EventLog, after: int | None, limit: int, query_id: str | None = None
) -> Response:
    latest = events.latest()  # first: events that happen meanwhile are not on the page
    if after is None:
        items = events.newest(limit, until=latest)
    else:
        items = events.since(after, limit, query_id=query_id, until=latest)
    page = EventPage(items=list(items), latest=latest)
    return Response(page.model_dump_json(), media_type=JSON)
