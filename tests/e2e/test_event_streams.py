"""Events over real sockets: cut off anywhere, beyond limits, through restarts of the service."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest

from circinus.api.schemas.events import EventKind
from circinus.api.store.engine import connect
from circinus.api.store.records import NewEvent, NewQuery
from circinus.api.store.store import Store
from tests.e2e.event_streams import Client, frames_in
from tests.e2e.service_process import ON_ONE_TIER, ServiceProcess, serving
from tests.e2e.service_process import query as asked

PATIENCE_S = 120.0


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    folder: Path = tmp_path_factory.mktemp("events")
    limits = {"stream_limit": "3", "connection_limit": "4", "control_limit": "1"}
    pipeline = "tests.e2e.slow_sum:pipeline"
    with serving(folder, ON_ONE_TIER, pipeline, keeper_waits_s="20", **limits) as made:
        yield made


@pytest.fixture
def store(service: ServiceProcess) -> Iterator[Store]:
    """The database of the service, as planning workers have it."""
    made = Store(connect(service.database_url))
    yield made
    made.close()


def tell(store: Store, count: int = 1, query_id: str | None = None) -> None:
    news = [
        NewEvent(
            kind=EventKind.PROGRESS,
            at=1.0,
            query_id=query_id,
            words="it goes on \u2028\u00e9" + "x" * (number % 300),
            data={"number": number},
        )
        for number in range(count)
    ]
    store.events.tell(*news)


class Clients:
    """Opens streams of a service, and ends them all."""

    def __init__(self, service: ServiceProcess) -> None:
        self._port, self._opened = service.port, list[Client]()

    async def open(self, path: str = "/v1/events", after: int | None = None) -> Client:
        self._opened.append(await Client(self._port, path, after).open())
        return self._opened[-1]

    async def open_in_turn(self, path: str = "/v1/events", after: int | None = None) -> Client:
        """Open a stream when the service has seen that others are gone."""
        while (client := await self.open(path, after)).status == 503:
            await asyncio.sleep(0.01)
        return client

    async def close(self) -> None:
        for client in self._opened:
            await client.close()
        self._opened.clear()


def run(service: ServiceProcess, scene: Callable[[Clients], Awaitable[None]]) -> None:
    async def whole() -> None:
        clients = Clients(service)
        try:
            async with asyncio.timeout(PATIENCE_S):
                await scene(clients)
        finally:
            await clients.close()

    asyncio.run(whole())


def test_the_stream_of_an_unknown_query_is_not_found(service: ServiceProcess) -> None:
    async def scene(clients: Clients) -> None:
        client = await clients.open(path="/v1/queries/q-9/events")
        assert client.status == 404
        assert client.headers["content-type"] == "application/problem+json"

    run(service, scene)


def test_more_streams_than_are_taken_come_later_and_keep_nobody_else_out(
    service: ServiceProcess, store: Store
) -> None:
    async def scene(clients: Clients) -> None:
        streams = [await clients.open_in_turn() for _ in range(3)]
        late = await clients.open()
        assert (late.status, late.headers["retry-after"]) == (503, "1")
        # Neither connections nor requests in hand are used up by them.
        for _ in range(3):
            answer = await asyncio.to_thread(service.ask, "GET", "/v1/events?limit=1")
            assert answer.status_code == 200
        await asyncio.to_thread(tell, store)
        assert [len(await client.read_frames(1)) for client in streams] == [1] * 3
        await clients.close()
        await clients.open_in_turn()

    run(service, scene)


def test_a_stream_resumes_after_the_last_event_that_was_seen(
    service: ServiceProcess, store: Store
) -> None:
    tell(store, 9)
    after = store.events.latest() - 5

    async def scene(clients: Clients) -> None:
        asked_of = ("/v1/events", after), (f"/v1/events?after={after}", None)
        for path, last in asked_of:
            client = await clients.open_in_turn(path, last)
            frames = await client.read_frames(5)
            assert [frame.id for frame in frames] == [after + 1 + i for i in range(5)]
            assert [frame.data["id"] for frame in frames] == [frame.id for frame in frames]
            assert {frame.event for frame in frames} == {"query.progress"}
        both = await clients.open_in_turn(path="/v1/events?after=0", after=after + 4)
        assert [frame.id for frame in await both.read_frames(1)] == [after + 5]

    run(service, scene)


def test_what_is_not_kept_is_said_and_all_that_is_follows(
    service: ServiceProcess, store: Store
) -> None:
    tell(store, 5)
    latest = store.events.latest()

    async def scene(clients: Clients) -> None:
        client = await clients.open_in_turn(after=latest + 1000)  # of another database
        frames = await client.read_frames(latest + 1)
        assert (frames[0].event, frames[0].id) == ("reset", 0)
        assert [frame.id for frame in frames[1:]] == [*range(1, latest + 1)]

    run(service, scene)


def test_a_stream_ends_in_order_with_its_service_and_resumes_with_the_next(
    service: ServiceProcess, store: Store
) -> None:
    async def scene(clients: Clients) -> None:
        client = await clients.open_in_turn()
        tell(store)
        [seen] = await client.read_frames(1)
        await asyncio.to_thread(service.kill)
        await client.read_until_end()
        assert client.ended
        tell(store, 3)
        away = await clients.open(after=seen.id)
        assert (away.status, away.headers["retry-after"]) == (503, "1")
        await asyncio.to_thread(service.start)
        again = await clients.open_in_turn(after=seen.id)
        assert seen.id is not None
        frames = await again.read_frames(3)
        assert [frame.id for frame in frames] == [seen.id + 1 + i for i in range(3)]

    run(service, scene)


def test_a_query_tells_its_whole_way_on_a_stream_and_on_a_page(service: ServiceProcess) -> None:
    async def scene(clients: Clients) -> None:
        query_id = await asyncio.to_thread(service.submit)
        client = await clients.open_in_turn(path=f"/v1/queries/{query_id}/events")
        await asyncio.to_thread(service.wait_for_phase, query_id, "serving")
        phases: list[object] = []
        while "serving" not in phases:
            await client.read()
            frames = frames_in(client.body)
            phases = [f.data["data"]["phase"] for f in frames if f.event == "query.phase"]
        assert phases == ["queued", "planning", "waiting", "deploying", "serving"]
        kinds = {frame.event for frame in frames}
        assert {"query.progress", "query.measured", "deployment.changed"} <= kinds
        deployed = [f.data["data"]["state"] for f in frames if f.event == "deployment.changed"]
        assert deployed == ["starts", "serves"]
        page = service.ask("GET", f"/v1/queries/{query_id}/events?limit=1000").json()
        assert page["items"][: len(frames)] == [frame.data for frame in frames]
        retired = await asyncio.to_thread(
            service.ask, "DELETE", f"/v1/queries/{query_id}/deployment"
        )
        assert retired.status_code == 200
        while "ended" not in str(frames[-1].data):
            await client.read()
            frames = frames_in(client.body)
        every = service.ask("GET", "/v1/events?limit=1000").json()
        told = [e["data"]["queries"] for e in every["items"] if e["kind"] == "schedule.changed"]
        assert {"state": "gone"} in [each.get(query_id) for each in told]

    run(service, scene)


@contextmanager
def written(store: Store, query_id: str) -> Iterator[None]:
    """Tell events of a query and others all the time."""
    over = threading.Event()

    def write() -> None:
        for count in itertools.count():
            if over.wait(0.005):
                return
            tell(store, 1 + count % 3, query_id)
            tell(store)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield
    finally:
        over.set()
        writer.join()


async def cut_off(client: Client, draw: np.random.Generator) -> list[int]:
    """Read until some byte, or for some moment; give the events that came whole."""
    most = int(draw.integers(0, 4000))
    with suppress(TimeoutError):
        async with asyncio.timeout(draw.exponential(0.03)):
            while len(client.body) < most and await client.read(most - len(client.body)):
                pass
    return [frame.id for frame in frames_in(client.body) if frame.id is not None]


@pytest.mark.parametrize(
    "cuts", [60, pytest.param(1000, marks=[pytest.mark.slow, pytest.mark.timeout(300)])]
)
def test_a_stream_cut_off_at_any_moment_resumes_without_a_gap_or_a_repeat(
    service: ServiceProcess, store: Store, cuts: int
) -> None:
    new = NewQuery(id=f"q-{cuts}", spec=asked(), fingerprint="", idempotency_key=None, at=0.0)
    store.submit(new)
    store.request_cancel(new.id, at=0.0)
    begin, draw = store.events.latest(), np.random.default_rng(cuts)
    paths = {"/v1/events": None, f"/v1/queries/{new.id}/events": new.id}
    seen: dict[str, list[int]] = {path: [] for path in paths}

    async def scene(clients: Clients) -> None:
        with written(store, new.id):
            for path in itertools.islice(itertools.cycle(paths), cuts):
                ids = seen[path]
                client = await clients.open_in_turn(path, ids[-1] if ids else begin)
                ids += await cut_off(client, draw)
                await clients.close()
        for path, query_id in paths.items():
            ids = seen[path]
            wanted = [e.id for e in store.events.since(begin, 10**6, query_id=query_id)]
            last = await clients.open_in_turn(path, ids[-1] if ids else begin)
            frames = await last.read_frames(len(wanted) - len(ids))
            ids += [frame.id for frame in frames if frame.id is not None]
            assert ids == wanted

    run(service, scene)


def test_a_service_stops_at_once_whoever_follows(tmp_path: Path) -> None:
    pipeline = "tests.e2e.slow_sum:pipeline"
    with serving(tmp_path, ON_ONE_TIER, pipeline) as service:

        async def scene(clients: Clients) -> None:
            streams = [await clients.open() for _ in range(5)]
            stopping = asyncio.create_task(asyncio.to_thread(service.stop))
            for client in streams:
                await client.read_until_end()
                assert client.ended
            assert await stopping == 0

        run(service, scene)
    assert "graceful shutdown exceeded" not in (tmp_path / "service.log").read_text()
