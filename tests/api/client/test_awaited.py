"""Events over connections that break: nothing is left out, nothing is told twice."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from itertools import islice

import numpy as np
import pytest

from circinus.api.client import AsyncClient, Client, Refused, Retries
from circinus.api.phases import QueryPhase
from circinus.pipelines.errors import Unavailable
from tests.api.client.event_server import AT, EventServer, telling
from tests.api.malformed import query

QUICK = Retries(first_s=0.001, longest_s=0.005)
COUNT = 200
VIEW = {"id": "q-1", "request": query(), "phase": "planning", "submitted_at": AT, "updated_at": AT}

Read = Callable[[EventServer, int], list[int]]


def blocking(server: EventServer, count: int) -> list[int]:
    with Client(server.url, retries=QUICK) as client:
        return [event.id for event in islice(client.events("q-1"), count)]


def awaited(server: EventServer, count: int) -> list[int]:
    async def read() -> list[int]:
        found: list[int] = []
        async with AsyncClient(server.url, retries=QUICK) as client:
            async for event in client.events("q-1"):
                found.append(event.id)
                if len(found) == count:
                    break
        return found

    return asyncio.run(read())


READERS = pytest.mark.parametrize("read", [blocking, awaited])


@READERS
def test_a_service_that_knows_no_such_query_is_not_asked_again(read: Read) -> None:
    with telling(EventServer(refusals=iter([404]))) as server, pytest.raises(Refused):
        read(server, 1)
    assert len(server.asked) == 1


@READERS
def test_a_service_that_is_away_for_long_is_given_up(read: Read) -> None:
    server = EventServer(port=1)  # nobody listens there
    retries = Retries(first_s=0.001, longest_s=0.005, silent_s=0.05)
    with (
        Client(server.url, retries=retries) as client,
        pytest.raises(Unavailable, match="no service answers"),
    ):
        next(client.events("q-1"))


@READERS
@pytest.mark.parametrize("seed", range(3))
def test_a_stream_that_is_cut_anywhere_goes_on_without_gap_or_repeat(
    read: Read, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    cuts = iter(rng.integers(0, 400, 10 * COUNT).tolist())
    with telling(EventServer(serials=list(range(1, COUNT + 1)), cuts=cuts)) as server:
        assert read(server, COUNT) == server.serials
    # An event has 190 bytes, so that a connection tells two at most.
    assert len(server.asked) > COUNT / 2


@READERS
def test_a_refusal_for_now_is_tried_again_where_it_was(read: Read) -> None:
    with telling(EventServer(serials=[4, 7], refusals=iter([503, 429]))) as server:
        assert read(server, 2) == [4, 7]
    assert server.asked == [("/v1/queries/q-1/events", "0")] * 3


@READERS
def test_events_that_come_later_are_told_on_the_same_connection(read: Read) -> None:
    with telling(EventServer(serials=[1])) as server:
        threading.Timer(0.1, server.serials.append, [2]).start()
        assert read(server, 2) == [1, 2]
    assert len(server.asked) == 1


def test_the_whole_service_is_followed_from_now_on_also_before_the_first_event() -> None:
    with telling(EventServer(serials=[1, 2, 3], cuts=iter([0, 0]))) as server:

        def later() -> None:
            while len(server.asked) < 3:
                time.sleep(0.01)
            server.serials.append(4)

        threading.Thread(target=later).start()
        with Client(server.url, retries=QUICK) as client:
            assert next(client.events()).id == 4
    assert {last for _, last in server.asked} == {"3"}


def test_what_is_not_kept_any_more_is_told_before_what_is() -> None:
    server = EventServer(serials=[8, 9], dropped=7, cuts=iter([260]))
    with telling(server), Client(server.url, retries=QUICK) as client:
        found = list(islice(client.events("q-1", after=3), 3))
    assert [(event.id, event.kind) for event in found] == [
        (0, "reset"),
        (8, "query.progress"),
        (9, "query.progress"),
    ]


def test_somebody_who_saw_an_event_goes_on_after_it() -> None:
    with telling(EventServer(serials=[1, 2, 3])) as server, Client(server.url) as client:
        assert next(client.events("q-1", after=2)).id == 3


def test_a_query_is_waited_for_until_it_is_in_a_phase() -> None:
    with telling(EventServer(serials=[1], query=dict(VIEW))) as server:

        def settle() -> None:
            while not server.asked:
                time.sleep(0.01)
            server.query["phase"] = "infeasible"
            server.serials.append(2)

        threading.Thread(target=settle).start()
        with Client(server.url, retries=QUICK) as client:
            assert client.wait("q-1").phase is QueryPhase.INFEASIBLE
            assert client.wait("q-1", until={QueryPhase.INFEASIBLE}).id == "q-1"
    assert server.asked[0] == ("/v1/queries/q-1/events", "1")


def test_a_wait_ends_in_time() -> None:
    async def wait() -> None:
        async with AsyncClient(server.url, retries=QUICK) as client:
            await client.wait("q-1", lambda query: query.plan_id is not None, timeout_s=0.2)

    with telling(EventServer(serials=[1], query=dict(VIEW))) as server:
        for ask in (
            lambda: asyncio.run(wait()),
            lambda: Client(server.url).wait("q-1", timeout_s=0.2),
        ):
            began = time.perf_counter()
            with pytest.raises(Unavailable, match=r"query q-1 is planning after 0.2 s"):
                ask()
            assert time.perf_counter() - began < 2
