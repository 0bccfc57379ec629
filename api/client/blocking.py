"""A service for programs that block: the asynchronous client, run in a thread of its own."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import AbstractContextManager, closing, suppress
from functools import partial, wraps
from threading import Thread
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, Unpack, overload

import httpx

from circinus.api.client.awaited import (
    AsyncClient,
    QueryFilter,
    Until,
    changes,
    holds,
    ignore,
    is_settled,
)
from circinus.api.client.connection import Answer, CallOptions, Retries
from circinus.api.schemas.events import EventView
from circinus.api.schemas.progress import QueryView
from circinus.pipelines.clock import Clock

P = ParamSpec("P")
Item = TypeVar("Item")

_LOOPS: dict[int, asyncio.AbstractEventLoop] = {}  # of each process: no thread survives a fork


def _run(coroutine: Coroutine[Any, Any, Answer]) -> Answer:
    """Return what a coroutine returns on the loop of all blocking clients, in another thread.

    The loop lives as long as the process: programs that do not close their clients end all the
    same, and so do notebooks, where a loop of their own runs.
    """
    loop = _LOOPS.get(os.getpid())
    if loop is None:
        made = asyncio.new_event_loop()
        loop = _LOOPS.setdefault(os.getpid(), made)  # another thread may have been faster
        if loop is made:
            Thread(target=loop.run_forever, name="circinus-client", daemon=True).start()
        else:
            made.close()
    future = asyncio.run_coroutine_threadsafe(coroutine, loop)
    try:
        return future.result()
    except BaseException:
        future.cancel()  # interrupted: the caller no longer waits
        raise
    finally:
        del future  # no cycle through the traceback


class Blocking(Generic[P, Answer]):
    """A method of `AsyncClient`, for callers that block."""

    def __init__(
        self, method: Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, Answer]]
    ) -> None:
        self.name = method.__name__
        self.__doc__ = method.__doc__

    @overload
    def __get__(self, client: None, owner: type[object]) -> Self: ...
    @overload
    def __get__(self, client: Client, owner: type[object]) -> Callable[P, Answer]: ...
    def __get__(self, client: Client | None, owner: type[object]) -> object:
        """Return the method of a client."""
        if client is None:
            return self
        awaited: Callable[P, Coroutine[Any, Any, Answer]] = getattr(client._awaited, self.name)

        @wraps(awaited)
        def blocking(*args: P.args, **kwargs: P.kwargs) -> Answer:
            return _run(awaited(*args, **kwargs))

        return blocking


class Client(AbstractContextManager["Client"]):
    """A service at one address. Use it as a context manager.

    Address and token default to CIRCINUS_URL and CIRCINUS_TOKEN. Every method raises InvalidInput
    for an input that breaks rules, Refused for any other problem that the service names, and
    Unavailable when it cannot answer after all retries.
    """

    def __init__(
        self,
        base_url: str | None = None,
        *,
        token: str | None = None,
        retries: Retries | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._make = partial(
            AsyncClient, base_url, token=token, retries=retries, transport=transport, clock=clock
        )
        self._made = os.getpid(), self._make()

    @property
    def _awaited(self) -> AsyncClient:
        """The client that does the work, in this process."""
        process, client = self._made
        if process != os.getpid():  # connections of the parent are not ours
            client = self._make()
            self._made = os.getpid(), client
        return client

    @property
    def base_url(self) -> str:
        """The address of the service."""
        return self._awaited.base_url

    def __exit__(self, *error: object) -> None:
        """Close the connections."""
        _run(self._awaited.__aexit__(*error))

    submit = Blocking(AsyncClient.submit)
    hand_over = Blocking(AsyncClient.hand_over)
    upload = Blocking(AsyncClient.upload)
    dataset = Blocking(AsyncClient.dataset)
    datasets = Blocking(AsyncClient.datasets)
    forget = Blocking(AsyncClient.forget)
    query = Blocking(AsyncClient.query)
    page = Blocking(AsyncClient.page)
    cancel = Blocking(AsyncClient.cancel)
    replan = Blocking(AsyncClient.replan)
    what_if = Blocking(AsyncClient.what_if)
    plans = Blocking(AsyncClient.plans)
    plan = Blocking(AsyncClient.plan)
    explanation = Blocking(AsyncClient.explanation)
    deployment = Blocking(AsyncClient.deployment)
    undeploy = Blocking(AsyncClient.undeploy)
    objectives = Blocking(AsyncClient.objectives)
    set_replicas = Blocking(AsyncClient.set_replicas)
    drop_replicas = Blocking(AsyncClient.drop_replicas)
    pool = Blocking(AsyncClient.pool)
    choose_query_pool = Blocking(AsyncClient.choose_query_pool)
    set_pool = Blocking(AsyncClient.set_pool)
    drop_pool = Blocking(AsyncClient.drop_pool)
    request = Blocking(AsyncClient.request)
    health = Blocking(AsyncClient.health)
    ready = Blocking(AsyncClient.ready)
    metrics = Blocking(AsyncClient.metrics)
    schedule = Blocking(AsyncClient.schedule)
    preview = Blocking(AsyncClient.preview)
    problem = Blocking(AsyncClient.problem)
    choose_pool = Blocking(AsyncClient.choose_pool)
    routes = Blocking(AsyncClient.routes)
    route = Blocking(AsyncClient.route)
    set_route = Blocking(AsyncClient.set_route)
    drop_route = Blocking(AsyncClient.drop_route)
    ask_route = Blocking(AsyncClient.ask_route)
    pipelines = Blocking(AsyncClient.pipelines)
    method = Blocking(AsyncClient.method)
    infrastructure = Blocking(AsyncClient.infrastructure)
    set_machines = Blocking(AsyncClient.set_machines)
    emulation = Blocking(AsyncClient.emulation)
    set_emulation = Blocking(AsyncClient.set_emulation)
    event_page = Blocking(AsyncClient.event_page)

    def call(
        self,
        method: str,
        path: str,
        read: Callable[[bytes], Answer],
        **options: Unpack[CallOptions],
    ) -> Answer:
        """Return the answer to a call; `read` raises ValueError if a body is no such answer."""
        return _run(self._awaited.call(method, path, read, **options))

    def all_queries(self, **chosen: Unpack[QueryFilter]) -> Generator[QueryView]:
        """Yield every query, newest first, page after page."""
        return _iterate(self._awaited.all_queries(**chosen))

    def events(
        self, query_id: str | None = None, *, after: int | None = None
    ) -> Generator[EventView]:
        """Yield what happens to a query, or to everything; see `AsyncClient.events`."""
        return _iterate(self._awaited.events(query_id, after=after))

    def wait(
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
        client = self._awaited
        # In this thread, so that `told` and `until` may use this client.
        with closing(_iterate(changes(client, query_id, timeout_s))) as queries:
            while True:
                query = next(queries)
                told(query)
                if _run(is_settled(client, query)) if until is None else holds(until, query):
                    return query


def _iterate(items: AsyncGenerator[Item]) -> Generator[Item]:
    """Yield what an asynchronous generator yields."""
    try:
        while (item := _run(_next(items))) is not None:
            yield item
    finally:
        # No waiting: this may run wherever garbage is collected.
        asyncio.run_coroutine_threadsafe(_close(items), _LOOPS[os.getpid()])


async def _next(items: AsyncGenerator[Item]) -> Item | None:
    return await anext(items, None)


async def _close(items: AsyncGenerator[Item]) -> None:
    with suppress(RuntimeError):  # one that is being cancelled closes itself
        await items.aclose()
