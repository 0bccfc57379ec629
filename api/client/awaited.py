"""A service for asynchronous programs: its calls, its events, and waiting for a query."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import (
    AbstractAsyncContextManager,
    aclosing,
)
from datetime import UTC, datetime
from typing import (
    ParamSpec,
    TypeAlias,
    TypedDict,
    TypeVar,
    Unpack,
)

import httpx
from httpx_sse import ServerSentEvent, aconnect_sse
from pydantic import BaseModel, ValidationError

from circinus.api.client.connection import Retries, problem_in
from circinus.api.client.service import ServiceCalls, event_path
from circinus.api.phases import SETTLED, QueryPhase
from circinus.api.schemas.events import EventKind, EventView
from circinus.api.schemas.progress import QueryView
from circinus.pipelines.clock import Clock
from circinus.pipelines.errors import Unavailable

RESET = "reset"
"""Kind of the event before events that do not follow those that a reader has."""
_PATIENCE = httpx.Timeout(45.0, connect=10.0)  # a service sends something every 15 s
_STREAM = "text/event-stream"

P = ParamSpec("P")
Item = TypeVar("Item")
Until: TypeAlias = Collection[QueryPhase] | Callable[[QueryView], bool] | None
"""What a query is waited for: one of these phases, or that this holds of it; None: that nothing
more happens to it by itself, as it serves, ended, or waits for machines."""


class QueryFilter(TypedDict, total=False):
    """Which queries to list; of what is left out, any."""

    phase: str | None
    tenant: str | None
    key_prefix: str | None
    unfinished: bool


def ignore(_: QueryView) -> None:
    """Do nothing with a query."""


class AsyncClient(ServiceCalls, AbstractAsyncContextManager["AsyncClient"]):
    """A service at one address, for use within one event loop; see `Client`."""

    def __init__(
        self,
        base_url: str | None = None,
        *,
        token: str | None = None,
        retries: Retries | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(base_url, token, retries, transport, clock)

    async def __aexit__(self, *error: object) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def all_queries(self, **chosen: Unpack[QueryFilter]) -> AsyncGenerator[QueryView]:
        """Yield every query, newest first, page after page."""
        cursor, more = None, True
        while more:
            page = await self.page(cursor=cursor, **chosen)
            for query in page.items:
                yield query
            cursor, more = page.next_cursor, page.next_cursor is not None

    async def events(
        self, query_id: str | None = None, *, after: int | None = None
    ) -> AsyncGenerator[EventView]:
        """Yield events of a query, or of everything, as they happen, without end.

        After the event with the serial number `after`; None: all events of a query, or the new
        events of everything. A lost connection resumes where it was: no event is missing or
        repeated, unless an event of the kind `reset` announces it. Unavailable if
        the service is silent for longer than `Retries.silent_s`.
        """
        if after is None:
            after = 0 if query_id is not None else (await self.event_page(limit=1)).latest
        failed, since_s = 0, self._clock.now()  # connections in a row, and the first of them
        while True:
            headers = {"Last-Event-ID": str(after)}
            try:
                async with aconnect_sse(
                    self._http, "GET", event_path(query_id), headers=headers, timeout=_PATIENCE
                ) as source:
                    trouble = await self._refusal(source.response)
                    if trouble is None:
                        failed = 0
                        async for message in source.aiter_sse():
                            event = self._event(message, query_id)
                            if event is not None and (event.id > after or event.kind == RESET):
                                after = event.id
                                yield event
            except httpx.HTTPError as error:
                trouble = self._silent(error)
                trouble.__cause__ = error  # it is raised later, if at all
            if trouble is not None:
                since_s = self._clock.now() if failed == 0 else since_s
                failed += 1
                if self._clock.now() - since_s >= self._retries.silent_s:
                    raise trouble
            await self._sleep(self._pause_s(failed + 1, trouble))

    async def _refusal(self, response: httpx.Response) -> Unavailable | None:
        """Return why no events arrive now, None if they do; raise permanent errors."""
        if not response.is_success:
            await response.aread()
            error = problem_in(response)
            if isinstance(error, Unavailable):
                return error
            raise error
        if response.headers.get("Content-Type", "").partition(";")[0] != _STREAM:
            raise Unavailable(f"{self.base_url} has no stream of events", retry_after_s=1.0)
        return None

    def _event(self, message: ServerSentEvent, query_id: str | None) -> EventView | None:
        """Return the event of a message; None: it has none."""
        if not message.data:
            return None
        try:
            if message.event != RESET:
                return EventView.model_validate_json(message.data)
            after = _Reset.model_validate_json(message.data).after
        except ValidationError as error:
            reason = f"{self.base_url} sends events unlike this version of Circinus"
            raise Unavailable(reason, retry_after_s=1.0) from error
        return EventView(
            id=after,
            at=datetime.fromtimestamp(self._clock.timestamp(), UTC),
            kind=RESET,
            query_id=query_id,
            words="Requested events were dropped; all that are stored follow.",
            data={"after": after},
        )

    async def wait(
        self,
        query_id: str,
        until: Until = None,
        *,
        timeout_s: float | None = None,
        told: Callable[[QueryView], None] = ignore,
    ) -> QueryView:
        """Return a query once it is as it is waited for; Unavailable if it is not in time.

        `told` receives the query at first, and after each of its events.
        """
        async with aclosing(changes(self, query_id, timeout_s)) as queries:
            while True:
                query = await anext(queries)
                told(query)
                if await is_settled(self, query) if until is None else holds(until, query):
                    return query


class _Reset(BaseModel):
    after: int


async def changes(
    client: AsyncClient, query_id: str, timeout_s: float | None
) -> AsyncGenerator[QueryView]:
    """Yield a query as it is, and after each event that may change it; Unavailable in the end."""
    ends = None if timeout_s is None else asyncio.get_running_loop().time() + timeout_s
    latest = (await client.event_page(query_id, limit=1)).latest
    async with aclosing(client.events(query_id, after=latest)) as events:
        while True:
            query = await client.query(query_id)
            yield query
            try:
                async with asyncio.timeout_at(ends):
                    while (await anext(events)).kind == EventKind.MEASURED:
                        pass  # one measurement changes nothing
            except TimeoutError as error:
                reason = f"query {query.id} is {query.phase.value} after {timeout_s} s"
                raise Unavailable(reason, retry_after_s=0.0) from error


async def is_settled(client: AsyncClient, query: QueryView) -> bool:
    """Return whether nothing more happens to a query by itself."""
    if query.phase is not QueryPhase.WAITING:
        return query.phase in SETTLED
    # For capacity, or only for the schedule to be made?
    schedule = await client.schedule(observed=False)
    return any(waiting.query_id == query.id for waiting in schedule.waiting)


def holds(until: Collection[QueryPhase] | Callable[[QueryView], bool], query: QueryView) -> bool:
    """Return whether a query is in one of some phases, or a condition holds of it."""
    return until(query) if callable(until) else query.phase in until
