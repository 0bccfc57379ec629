"""Events as they come, from a real store to readers of one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import pytest

from circinus.api.control.feed import Feed
from circinus.api.schemas.events import EventKind, EventView
from circinus.api.store.engine import connect
from circinus.api.store.events import EventLog
from circinus.api.store.failures import DatabaseAway
from circinus.api.store.records import NewEvent
from circinus.api.store.store import Store

PATIENCE_S = 30.0


@dataclass
class Trouble:
    """What keeps readers from the table."""

    times: int = 0
    looks: int = 0


class WatchedLog(EventLog):
    """A log that fails as often as it is told, and counts who looks."""

    def __init__(self, store: Store, trouble: Trouble) -> None:
        super().__init__(store.events._engine)
        self._trouble = trouble

    def since(self, after: int, limit: int, **more: Any) -> tuple[EventView, ...]:  # noqa: ANN401 - as it comes
        self._trouble.looks += 1
        if self._trouble.times > 0:
            self._trouble.times -= 1
            raise DatabaseAway("the database cannot be reached now")
        return super().since(after, limit, **more)


@dataclass
class Rendered:
    """Tells events by their ids, and counts what it was asked to."""

    ids: list[int] = field(default_factory=list)
    broken: int = 0  # times that it fails from now on

    def __call__(self, event: EventView) -> bytes:
        if self.broken > 0:
            self.broken -= 1
            raise RuntimeError("it cannot be told")
        self.ids.append(event.id)
        return b"%d " % event.id


@pytest.fixture
def rendered() -> Rendered:
    return Rendered()


@pytest.fixture
def feed(store: Store, rendered: Rendered) -> Feed:
    return Feed(store.events, rendered, look_s=0.01)


def tell(store: Store, count: int = 1, query_id: str | None = None) -> list[int]:
    """Store some events; give the ids of those that one store told."""
    before = store.events.latest()
    news = NewEvent(
        kind=EventKind.PROGRESS, at=1.0, query_id=query_id, words="it goes on", data={}
    )
    store.events.tell(*[news] * count)
    return [event.id for event in store.events.since(before, count)]


async def read(texts: AsyncGenerator[bytes], count: int) -> list[int]:
    """Return so many ids, and whatever else came with the last."""
    found: list[int] = []
    while len(found) < count:
        found += map(int, (await anext(texts)).split())
    return found


def run(scene: Callable[[], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await scene()

    asyncio.run(whole())


def test_a_feed_that_is_closed_ends_for_who_follows_and_who_comes(feed: Feed) -> None:
    async def scene() -> None:
        follow = feed.follow(0, silence_s=PATIENCE_S)
        waits = asyncio.create_task(anext(follow))
        await asyncio.sleep(0.05)
        feed.close()
        with pytest.raises(StopAsyncIteration):
            await waits
        assert [text async for text in feed.follow(0, silence_s=PATIENCE_S)] == []

    run(scene)


def test_a_database_that_is_away_costs_nothing_but_time(
    store: Store, rendered: Rendered, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("circinus.api.control.feed._RETRY_S", 0.01)
    trouble = Trouble(times=3)
    feed = Feed(WatchedLog(store, trouble), rendered, look_s=0.01)

    async def scene() -> None:
        expected = tell(store, 3)
        async with aclosing(feed.follow(0, silence_s=PATIENCE_S)) as texts:
            assert await read(texts, 3) == expected
            trouble.times = 5
            expected = await asyncio.to_thread(tell, store, 3)
            assert await read(texts, 3) == expected
        assert trouble.times == 0

    run(scene)


def test_what_breaks_the_look_is_logged_and_the_look_goes_on(
    store: Store,
    feed: Feed,
    rendered: Rendered,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("circinus.api.control.feed._RETRY_S", 0.01)

    async def scene() -> None:
        async with aclosing(feed.follow(0, silence_s=PATIENCE_S)) as texts:
            assert await read(texts, 0) == []
            first = asyncio.create_task(read(texts, 2))
            await asyncio.sleep(0.05)
            rendered.broken = 1
            expected = await asyncio.to_thread(tell, store, 2)
            assert await first == expected

    run(scene)
    assert [record.message for record in caplog.records] == ["feed.look_failed"]


def test_nobody_looks_while_nobody_follows(store: Store, rendered: Rendered) -> None:
    trouble = Trouble()
    feed = Feed(WatchedLog(store, trouble), rendered, look_s=0.01)

    async def scene() -> None:
        for _ in range(2):
            async with aclosing(feed.follow(0, silence_s=0.05)) as texts:
                assert await anext(texts) == b""
            looks = trouble.looks
            await asyncio.sleep(0.1)
            assert trouble.looks == looks > 0

    run(scene)


def test_silence_is_told_and_then_what_comes(store: Store, feed: Feed) -> None:
    async def scene() -> None:
        async with aclosing(feed.follow(0, silence_s=0.02)) as texts:
            assert [await anext(texts) for _ in range(3)] == [b""] * 3
            expected = await asyncio.to_thread(tell, store, 2)
            assert await read(texts, 2) == expected

    run(scene)


def test_a_reader_of_a_query_gets_what_concerns_it(store: Store, feed: Feed) -> None:
    async def scene() -> None:
        before = tell(store, 2, "q-1")
        tell(store, 2, "q-2")
        async with (
            aclosing(feed.follow(0, "q-1", silence_s=PATIENCE_S)) as mine,
            aclosing(feed.follow(store.events.latest(), silence_s=PATIENCE_S)) as every,
        ):
            assert await read(mine, 2) == before
            waits = asyncio.create_task(read(every, 5))
            told = [await asyncio.to_thread(tell, store, 1, q) for q in ("q-1", "q-2", None)]
            more = await asyncio.to_thread(tell, store, 2, "q-1")
            assert await waits == [*told[0], *told[1], *told[2], *more]
            assert await read(mine, 3) == [*told[0], *more]

    run(scene)


def test_an_event_is_rendered_once_for_all_who_keep_up(
    store: Store, feed: Feed, rendered: Rendered
) -> None:
    async def scene() -> None:
        follows = [feed.follow(0, silence_s=PATIENCE_S) for _ in range(20)]
        waits = [asyncio.create_task(read(texts, 3)) for texts in follows]
        await asyncio.sleep(0.2)
        expected = await asyncio.to_thread(tell, store, 3)
        assert await asyncio.gather(*waits) == [expected] * 20
        assert rendered.ids == expected
        for texts in follows:
            await texts.aclose()

    run(scene)


def test_a_reader_that_does_not_keep_up_misses_nothing_and_holds_little(
    store: Store, feed: Feed
) -> None:
    async def scene() -> None:
        async with (
            aclosing(feed.follow(0, silence_s=PATIENCE_S)) as slow,
            aclosing(feed.follow(0, silence_s=PATIENCE_S)) as quick,
        ):
            expected = tell(store)
            assert await read(slow, 1) == await read(quick, 1) == expected
            for _ in range(50):
                fresh = await asyncio.to_thread(tell, store, 20)
                assert await read(quick, 20) == fresh
                expected += fresh
            [behind] = [r for r in feed._readers[None] if r.after == expected[0]]
            assert len(behind.held) <= 200
            assert await read(slow, 1000) == expected[1:]
            fresh = await asyncio.to_thread(tell, store, 1)
            assert await read(slow, 1) == fresh

    run(scene)


def test_whoever_comes_at_any_moment_gets_each_event_once(store: Store, feed: Feed) -> None:
    async def scene() -> None:
        found: list[list[int]] = []

        async def follow(delay_s: float) -> None:
            await asyncio.sleep(delay_s)
            async with aclosing(feed.follow(0, silence_s=PATIENCE_S)) as texts:
                found.append(await read(texts, 200))

        async with asyncio.TaskGroup() as group:
            for i in range(20):
                group.create_task(follow(i * 0.01))
            for _ in range(40):
                await asyncio.to_thread(tell, store, 5)
        assert found == [[event.id for event in store.events.since(0, 999)]] * 20

    run(scene)


def test_a_feed_reads_what_other_processes_tell(store: Store, feed: Feed) -> None:
    async def scene() -> None:
        other = Store(connect(store.events._engine.url.render_as_string(hide_password=False)))
        async with aclosing(feed.follow(0, silence_s=PATIENCE_S)) as texts:
            waits = asyncio.create_task(read(texts, 1))
            expected = await asyncio.to_thread(tell, other)
            assert await waits == expected
        other.close()

    run(scene)
