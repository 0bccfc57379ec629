"""What open streams of events cost a service and its serving process, beside one without any.

A real service with so many queries, one stream for each, and an event of each query in ten
seconds, at even distances; they are stored by this process, as planning workers do. The baseline
is the same service, with the same events, before anybody follows them. `STREAMS` and
`EVENTS_SECONDS` take another number than 500 and time than 30.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from circinus.api.schemas.events import EventKind
from circinus.api.store.engine import connect, migrate
from circinus.api.store.records import NewEvent, NewQuery
from circinus.api.store.store import Store
from tests.e2e.service_process import ON_ONE_TIER, ServiceProcess, serving

STREAMS = int(os.environ.get("STREAMS", "500"))
SECONDS = float(os.environ.get("EVENTS_SECONDS", "30"))
EVERY_S = 10.0
MOST_BYTES, MOST_OF_A_CORE = 200e6, 0.10
SPEC = {"pipeline": "slow-sum", "data": {"examples": 1}, "slo": {"accuracy": 0.5, "latency_s": 1}}
IDS = [f"q-{number:04d}" for number in range(STREAMS)]


@dataclass
class Streams:
    """Clients that follow a query each."""

    port: int
    bytes_read: int = 0
    serials: dict[str, list[int]] = field(default_factory=dict)  # query -> ids that came
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)
    _writers: list[asyncio.StreamWriter] = field(default_factory=list)

    async def open(self) -> None:
        for query_id in IDS:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            path = f"/v1/queries/{query_id}/events"
            head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n\r\n"
            writer.write(head.encode())
            assert b"200" in await reader.readline()
            self.serials[query_id] = []
            self._writers.append(writer)
            self._tasks.append(asyncio.create_task(self._follow(query_id, reader)))

    async def _follow(self, query_id: str, reader: asyncio.StreamReader) -> None:
        async for line in reader:
            self.bytes_read += len(line)
            if line.startswith(b"id: "):
                self.serials[query_id].append(int(line[4:]))

    async def close(self) -> None:
        for writer in self._writers:
            writer.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"sqlite:///{tmp_path_factory.mktemp('events') / 'store.sqlite3'}"


@pytest.fixture(scope="module")
def store(url: str) -> Iterator[Store]:
    """A store with queries that nobody plans."""
    engine = connect(url)
    migrate(engine)
    made = Store(engine)
    for query_id in IDS:
        new = NewQuery(id=query_id, spec=SPEC, fingerprint="", idempotency_key=None, at=0.0)
        made.submit(new)
        made.request_cancel(query_id, at=0.0)
    yield made
    made.close()


@pytest.fixture(scope="module")
def service(
    store: Store, url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServiceProcess]:
    folder: Path = tmp_path_factory.mktemp("service")
    pipeline = "tests.e2e.slow_sum:pipeline"
    with serving(folder, ON_ONE_TIER, pipeline, database_url=url) as made:
        yield made


async def told(store: Store, seconds: float) -> int:
    """Store events at an even rate; give how many."""
    gap_s, began, count = EVERY_S / STREAMS, time.perf_counter(), 0
    while (due := began + count * gap_s) < began + seconds:
        await asyncio.sleep(max(due - time.perf_counter(), 0.0))
        query_id = IDS[count % STREAMS]
        words, data = f"{query_id} is planning", {"measured": count, "spent_s": 1.5 * count}
        event = NewEvent(
            kind=EventKind.PROGRESS, at=time.time(), query_id=query_id, words=words, data=data
        )
        await asyncio.to_thread(store.events.tell, event)
        count += 1
    await asyncio.sleep(1.0)  # the last have come
    return count


def used(service: ServiceProcess) -> tuple[float, float, float]:
    """Return when, processor seconds, and bytes that are the processes' own."""
    cpu_s = own = 0.0
    for process in service.own_processes():
        times = process.cpu_times()
        cpu_s += times.user + times.system
        own += psutil.Process(process.pid).memory_full_info().uss
    return time.perf_counter(), cpu_s, own


async def share_of(service: ServiceProcess, store: Store) -> tuple[float, int]:
    """Return the part of a core that is used while events come, and how many came."""
    began, before_s, _ = used(service)
    count = await told(store, SECONDS)
    ended, after_s, _ = used(service)
    return (after_s - before_s) / (ended - began), count


def test_open_streams_cost_little(
    benchmark: BenchmarkFixture, service: ServiceProcess, store: Store
) -> None:
    async def scene() -> dict[str, float]:
        await asyncio.sleep(5.0)  # what starts has started
        without, _ = await share_of(service, store)
        _, _, before = used(service)
        streams = Streams(service.port)
        began = time.perf_counter()
        await streams.open()
        opened_s = time.perf_counter() - began
        await asyncio.sleep(2.0)  # each has got what was told before
        known = {query_id: len(ids) for query_id, ids in streams.serials.items()}
        share, count = await share_of(service, store)
        _, _, after = used(service)
        fresh = sum(len(ids) - known[query_id] for query_id, ids in streams.serials.items())
        assert fresh == count
        assert all(ids == sorted(set(ids)) for ids in streams.serials.values())
        await streams.close()
        return {
            "streams": STREAMS,
            "events": count,
            "opened_s": opened_s,
            "memory_mb": (after - before) / 1e6,
            "core_without": without,
            "core_with": share,
            "core_added": share - without,
        }

    found = benchmark.pedantic(  # type: ignore[no-untyped-call]  # ships no types
        lambda: asyncio.run(scene()), rounds=1
    )

    found = {"load_average": os.getloadavg()[0], **found}
    benchmark.extra_info.update(found)
    sys.stdout.write(f"\n{json.dumps(found)}\n")
    assert found["memory_mb"] * 1e6 < MOST_BYTES
    assert found["core_added"] < MOST_OF_A_CORE
