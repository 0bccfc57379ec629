"""Two clients of a service: one that blocks and one that is awaited. Both do the same."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, aclosing, closing
from functools import partial
from typing import Any, TypedDict, TypeVar, Unpack

import httpx

from circinus.api.client.exchange import (
    Exchanges,
    Pausing,
    Retries,
    Sending,
    Step,
    Talk,
    Working,
    not_a_url,
)
from circinus.api.client.feed import EventFeed
from circinus.api.client.verbs import Until, Verbs, look, tells_more
from circinus.api.schemas.events import EventView
from circinus.api.schemas.progress import QueryView
from circinus.api.settings import service_address
from circinus.pipelines.clock import Clock, SystemClock
from circinus.pipelines.errors import CircinusError, Unavailable

Answer = TypeVar("Answer")
_FAILURES = (httpx.HTTPError, httpx.InvalidURL, CircinusError)


def _unheard(_: QueryView) -> None:
    pass


class QueryFilter(TypedDict, total=False):
    """Which queries to list; of what is left out, any."""

    phase: str | None
    tenant: str | None
    key_prefix: str | None
    unfinished: bool


class Client(Verbs, AbstractContextManager["Client"]):
    """A service at one address. Use it as a context manager.

    Address and token are CIRCINUS_URL and CIRCINUS_TOKEN unless they are given. Every method
    raises InvalidInput for an input that breaks rules, Refused for any other problem that the
    service names, and Unavailable when it cannot answer now, however often it was tried.
    """

    def __init__(
        self,
        base_url: str | None = None,
        *,
        token: str | None = None,
        retries: Retries | None = None,
        transport: httpx.BaseTransport | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._exchanges, how = _prepared(base_url, token, retries, self._clock)
        self.base_url = self._exchanges.base_url
        try:
            self._http = httpx.Client(**how, transport=transport)
        except (httpx.InvalidURL, ValueError) as error:
            raise not_a_url(error, self.base_url) from error

    def __exit__(self, *error: object) -> None:
        """Close the connections."""
        self._http.close()

    def all_queries(self, **chosen: Unpack[QueryFilter]) -> Iterator[QueryView]:
        """Yield every query, newest first, page after page."""
        cursor, more = None, True
        while more:
            page = self.page(cursor=cursor, **chosen)
            yield from page.items
            cursor, more = page.next_cursor, page.next_cursor is not None

    def events(
        self, query_id: str | None = None, *, after: int | None = None
    ) -> Iterator[EventView]:
        """Yield what happens to a query, or to everything, as it happens, without end.

        After the event with the serial number `after`; None: of a query all that ever happened, of
        everything what happens from now on. A lost connection is made again, where it was: no
        event is left out or given twice, but for what one of the kind `reset` says. Unavailable if
        the service is silent for longer than `Retries.silent_s`.
        """
        if after is None:
            after = 0 if query_id is not None else self.event_page(limit=1).latest
        yield from self._heard(self._feed(query_id, after))

    def wait(
        self,
        query_id: str,
        until: Until = None,
        *,
        timeout_s: float | None = None,
        told: Callable[[QueryView], None] = _unheard,
    ) -> QueryView:
        """Return a query once it is as it is waited for; Unavailable if it is not in time.

        `told` gets the query as it is at first, and whenever something happened to it.
        """
        ends = None if timeout_s is None else self._clock.now() + timeout_s
        latest = self.event_page(query_id, limit=1).latest
        with closing(self._heard(self._feed(query_id, latest, ends))) as events:
            while True:
                query, done = self.carry_out(look(query_id, until))
                told(query)
                if done:
                    return query
                if next(filter(tells_more, events), None) is None:
                    raise _too_late(query, timeout_s)

    def _feed(self, query_id: str | None, after: int, ends: float | None = None) -> EventFeed:
        return EventFeed(exchanges=self._exchanges, query_id=query_id, after=after, ends=ends)

    def carry_out(self, talk: Talk[Answer]) -> Answer:
        """Return what a talk with the service comes to."""
        exchange = self._exchanges.of(talk)
        go_on = partial(next, exchange)
        while True:
            try:
                step: Step = go_on()
            except StopIteration as end:
                answer: Answer = end.value
                return answer
            try:
                given = self._done(step)
            except _FAILURES as error:
                go_on = partial(exchange.throw, error)
            else:
                go_on = partial(exchange.send, given)

    def _done(self, step: Step) -> object:
        match step:
            case Sending():
                return self._http.request(**_sent(step))
            case Working():
                return step.does()
            case Pausing():
                self._clock.sleep(step.seconds)
                return None

    def _heard(self, feed: EventFeed) -> Generator[EventView]:
        while not feed.is_over:
            try:
                with self._http.stream(**feed.connection()) as response:
                    if feed.opens(response):
                        for chunk in response.iter_bytes():
                            yield from feed.events_in(chunk)
                            if feed.is_stale:
                                break
                    else:
                        response.read()
                        feed.refused(response)
            except httpx.HTTPError as error:
                feed.lost(error)
            self._clock.sleep(feed.pause_s)


class AsyncClient(Verbs, AbstractAsyncContextManager["AsyncClient"]):
    """A service at one address, for use within one event loop; see `Client`."""

    def __init__(
        self,
        base_url: str | None = None,
        *,
        token: str | None = None,
        retries: Retries | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._clock = SystemClock()
        self._exchanges, how = _prepared(base_url, token, retries, self._clock)
        self.base_url = self._exchanges.base_url
        try:
            self._http = httpx.AsyncClient(**how, transport=transport)
        except (httpx.InvalidURL, ValueError) as error:
            raise not_a_url(error, self.base_url) from error

    async def __aexit__(self, *error: object) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def all_queries(self, **chosen: Unpack[QueryFilter]) -> AsyncIterator[QueryView]:
        """See `Client`."""
        cursor, more = None, True
        while more:
            page = await self.page(cursor=cursor, **chosen)
            for query in page.items:
                yield query
            cursor, more = page.next_cursor, page.next_cursor is not None

    async def events(
        self, query_id: str | None = None, *, after: int | None = None
    ) -> AsyncIterator[EventView]:
        """See `Client`."""
        if after is None:
            after = 0 if query_id is not None else (await self.event_page(limit=1)).latest
        async for event in self._heard(self._feed(query_id, after)):
            yield event

    async def wait(
        self,
        query_id: str,
        until: Until = None,
        *,
        timeout_s: float | None = None,
        told: Callable[[QueryView], None] = _unheard,
    ) -> QueryView:
        """See `Client`."""
        ends = None if timeout_s is None else self._clock.now() + timeout_s
        latest = (await self.event_page(query_id, limit=1)).latest
        async with aclosing(self._heard(self._feed(query_id, latest, ends))) as events:
            while True:
                query, done = await self.carry_out(look(query_id, until))
                told(query)
                if done:
                    return query
                async for event in events:
                    if tells_more(event):
                        break
                else:
                    raise _too_late(query, timeout_s)

    def _feed(self, query_id: str | None, after: int, ends: float | None = None) -> EventFeed:
        return EventFeed(exchanges=self._exchanges, query_id=query_id, after=after, ends=ends)

    async def carry_out(self, talk: Talk[Answer]) -> Answer:
        """See `Client`."""
        exchange = self._exchanges.of(talk)
        go_on = partial(next, exchange)
        while True:
            try:
                step: Step = go_on()
            except StopIteration as end:
                answer: Answer = end.value
                return answer
            try:
                given = await self._done(step)
            except _FAILURES as error:
                go_on = partial(exchange.throw, error)
            else:
                go_on = partial(exchange.send, given)

    async def _done(self, step: Step) -> object:
        match step:
            case Sending():
                return await self._http.request(**_sent(step))
            case Working():
                return await asyncio.to_thread(step.does)
            case Pausing():
                await asyncio.sleep(step.seconds)
                return None

    async def _heard(self, feed: EventFeed) -> AsyncGenerator[EventView]:
        while not feed.is_over:
            try:
                async with self._http.stream(**feed.connection()) as response:
                    if feed.opens(response):
                        async for chunk in response.aiter_bytes():
                            for event in feed.events_in(chunk):
                                yield event
                            if feed.is_stale:
                                break
                    else:
                        await response.aread()
                        feed.refused(response)
            except httpx.HTTPError as error:
                feed.lost(error)
            await asyncio.sleep(feed.pause_s)


class _Asked(TypedDict):
    base_url: str
    headers: dict[str, str]
    trust_env: bool


def _prepared(
    base_url: str | None, token: str | None, retries: Retries | None, clock: Clock
) -> tuple[Exchanges, _Asked]:
    """Return how calls are made, and what all of them have."""
    address = service_address(base_url, token)
    secret = address.token_text
    exchanges = Exchanges(base_url=address.url, retries=retries or Retries(), clock=clock)
    headers = {} if secret is None else {"Authorization": f"Bearer {secret}"}
    return exchanges, {"base_url": address.url, "headers": headers, "trust_env": False}


def _sent(step: Sending) -> dict[str, Any]:
    call = step.call
    return {
        "method": call.method,
        "url": call.path,
        "params": call.params,
        "headers": step.headers,
        "content": call.content,
        "timeout": call.timeout_s,
    }


def _too_late(query: QueryView, timeout_s: float | None) -> Unavailable:
    reason = f"query {query.id} is {query.phase.value} after {timeout_s} s"
    return Unavailable(reason, retry_after_s=0.0)
