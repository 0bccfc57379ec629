"""Server-sent events: how an event is written, and the endless answer.

https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

from __future__ import annotations

from contextlib import aclosing, suppress

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from circinus.api.control.feed import Feed
from circinus.api.http.data_plane import while_connected
from circinus.api.http.errors import ClientGone
from circinus.api.schemas.events import EventView

STREAM = "text/event-stream"
_HEADERS = {
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",  # nginx would hold events back
}
_BEGIN = b"retry: 1000\n\n"  # milliseconds until a browser reconnects
_SILENCE = b":\n\n"
_SILENCE_S = 15.0


def wants_stream(headers: Headers) -> bool:
    """Return whether a client accepts a stream by name."""
    kinds = (kind.partition(";")[0].strip() for kind in headers.get("accept", "").split(","))
    return STREAM in (kind.lower() for kind in kinds)


def frame(event: EventView) -> bytes:
    """Return an event as it is sent."""
    # JSON has no line ends of its own.
    return f"id: {event.id}\nevent: {event.kind}\ndata: {event.model_dump_json()}\n\n".encode()


def reset(after: int) -> bytes:
    """Return the frame that announces missing events; the next ones are after an id.

    Its receiver discards the state built from earlier events.
    """
    return f'id: {after}\nevent: reset\ndata: {{"after": {after}}}\n\n'.encode()


class EventStream(Response):
    """New events after an id, of a query or the whole service, until either side ends."""

    media_type = STREAM

    def __init__(self, feed: Feed, after: int, query_id: str | None, *, dropped: bool) -> None:
        super().__init__(headers=_HEADERS)
        del self.headers["content-length"]
        self._begin = _BEGIN + (reset(after) if dropped else b"")
        self._feed, self._after, self._query_id = feed, after, query_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection, see ASGI."""
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)
        with suppress(ClientGone):
            await while_connected(receive, self._send(send))
        await send({"type": "http.response.body", "body": b""})

    async def _send(self, send: Send) -> None:
        await send(_part(self._begin))
        follow = self._feed.follow(self._after, self._query_id, silence_s=_SILENCE_S)
        async with aclosing(follow) as texts:
            async for text in texts:
                await send(_part(text or _SILENCE))


def _part(body: bytes) -> dict[str, object]:
    return {"type": "http.response.body", "body": body, "more_body": True}
