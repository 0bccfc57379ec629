"""New events for any number of readers: one task polls the table for all of them.

Planning workers store events from other processes, so the feed polls, but only while there are
readers. A reader that keeps up receives the events polled for all. A slow one reads the missed
events from the table, so it costs little memory and misses nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import ParamSpec, TypeVar

from circinus.api.event_log import trouble
from circinus.api.schemas.events import EventView
from circinus.api.store.events import EventLog
from circinus.api.store.failures import DatabaseFailed

P = ParamSpec("P")
T = TypeVar("T")

LOOK_S = 0.25
"""Between two looks for new events."""
_AT_ONCE = 200  # events that are read at once
_MOST_HELD = 200  # events that a reader has not taken yet
_READERS = 4  # that are caught up at the same time: others want threads and the database, too
_RETRY_S = 1.0  # while the database is away
_LOG = logging.getLogger(__name__)


@dataclass(eq=False, slots=True)
class _Reader:
    query_id: str | None
    after: int  # id of the last event that it received
    held: list[tuple[int, bytes]] = field(default_factory=list)  # that it has not received yet
    behind: bool = True  # whether it misses some that are not held
    wake: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(eq=False, slots=True)
class Feed:
    """Returns new events, rendered. Used within one event loop."""

    events: EventLog
    render: Callable[[EventView], bytes]  # called once for an event, however many read it
    look_s: float = LOOK_S
    closed: bool = field(default=False, init=False)
    _readers: dict[str | None, set[_Reader]] = field(
        default_factory=lambda: defaultdict(set), init=False
    )
    _tail: asyncio.Task[None] | None = field(default=None, init=False)
    _catching_up: asyncio.Semaphore = field(
        default_factory=lambda: asyncio.Semaphore(_READERS), init=False
    )

    async def follow(
        self, after: int, query_id: str | None = None, *, silence_s: float
    ) -> AsyncGenerator[bytes]:
        """Yield the events after an id, in order, each once, some at a time; until `close`.

        None: of all queries. Nothing (`b""`) when no event arrived for so long. The reader must
        close it.
        """
        reader = _Reader(query_id, after)
        self._enter(reader)
        try:
            while not self.closed:
                if reader.behind:
                    reader.behind = False
                    async for text in self._missed(reader):
                        yield text
                elif reader.held:
                    held, reader.held = reader.held, []
                    fresh = [text for serial, text in held if serial > reader.after]
                    reader.after = max(reader.after, held[-1][0])
                    if fresh:
                        yield b"".join(fresh)
                else:
                    reader.wake.clear()
                    try:
                        async with asyncio.timeout(silence_s):
                            await reader.wake.wait()
                    except TimeoutError:
                        yield b""
        finally:
            self._leave(reader)

    def close(self) -> None:
        """End the streams of all readers."""
        self.closed = True
        for readers in self._readers.values():
            for reader in readers:
                reader.wake.set()

    def _enter(self, reader: _Reader) -> None:
        self._readers[reader.query_id].add(reader)
        if self._tail is None:
            self._tail = asyncio.create_task(self._keep_on())

    def _leave(self, reader: _Reader) -> None:
        mine = self._readers[reader.query_id]
        mine.discard(reader)
        if not mine:
            del self._readers[reader.query_id]
        if not self._readers and self._tail is not None:
            self._tail.cancel()
            self._tail = None

    async def _missed(self, reader: _Reader) -> AsyncIterator[bytes]:
        """Yield the events in the table; later ones are held, or set `behind` again."""
        more = True
        while more and not self.closed:
            async with self._catching_up:
                events = await self._read(reader.after, reader.query_id)
            more = len(events) == _AT_ONCE
            if events:
                reader.after = events[-1].id
                yield b"".join(map(self.render, events))

    async def _keep_on(self) -> None:
        while True:
            try:
                await self._look_on()
            except Exception as error:  # noqa: BLE001 - the loop's edge
                trouble(_LOG, "feed.look_failed", error=error)
                await asyncio.sleep(_RETRY_S)

    async def _look_on(self) -> None:
        """Hold new events for the readers of their queries."""
        position = await self._patiently(self.events.latest)
        for readers in self._readers.values():
            for reader in readers:  # earlier events reached no reader
                reader.behind = True
                reader.wake.set()
        while True:
            events = await self._read(position)
            for event in events:
                text = self.render(event)
                for key in {event.query_id, None}:
                    for reader in self._readers.get(key, ()):
                        _hold(reader, event.id, text)
            if events:
                position = events[-1].id
            if len(events) < _AT_ONCE:
                await asyncio.sleep(self.look_s)

    async def _read(self, after: int, query_id: str | None = None) -> Sequence[EventView]:
        return await self._patiently(self.events.since, after, _AT_ONCE, query_id=query_id)

    async def _patiently(self, read: Callable[P, T], *args: P.args, **more: P.kwargs) -> T:
        while True:
            try:
                return await asyncio.to_thread(read, *args, **more)
            except DatabaseFailed:  # the store logs it
                await asyncio.sleep(_RETRY_S)


def _hold(reader: _Reader, serial: int, text: bytes) -> None:
    if reader.behind:
        return
    if len(reader.held) < _MOST_HELD:
        reader.held.append((serial, text))
    else:
        reader.behind = True
        reader.held.clear()
    reader.wake.set()
