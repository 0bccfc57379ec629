"""Streams of events, read by hand from a socket, so that they can be cut off anywhere."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self

END = b"\n\n"
_LAST = b"0\r\n\r\n"


@dataclass(frozen=True)
class Frame:
    """What a client gets with an empty line."""

    id: int | None
    event: str
    data: dict[str, Any]


def frames_in(text: bytes) -> list[Frame]:
    """Return the frames that came whole, as browsers do; comments are none."""
    *whole, _cut = text.split(END)
    found = []
    for block in whole:
        fields = dict(line.split(": ", 1) for line in block.decode().split("\n") if ": " in line)
        if "data" in fields:
            serial = int(fields["id"]) if "id" in fields else None
            data: dict[str, Any] = json.loads(fields["data"])
            found.append(Frame(serial, fields["event"], data))
    return found


@dataclass
class Client:
    """One connection to a stream."""

    port: int
    path: str = "/v1/events"
    after: int | None = None  # last event that was seen; None: none was
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""  # without the marks of chunks
    ended: bool = False  # in order, by the service

    async def open(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self.port)
        lines = [f"GET {self.path} HTTP/1.1", "Host: 127.0.0.1", "Accept: text/event-stream"]
        if self.after is not None:
            lines.append(f"Last-Event-ID: {self.after}")
        self._writer.write("\r\n".join([*lines, "", ""]).encode())
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        self.status = int(head[0].split()[1])
        self.headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
        self._raw = b""
        return self

    async def read(self, most: int = 2**16) -> bool:
        """Read some bytes more; give whether there were any."""
        fresh = await self._reader.read(most)
        self._raw += fresh
        self.body, self.ended = _unchunked(self._raw)
        return bool(fresh)

    async def read_until_end(self) -> None:
        while await self.read():
            if self.ended:
                return

    async def read_frames(self, count: int) -> list[Frame]:
        while len(frames_in(self.body)) < count:
            assert await self.read(), "the stream ended"
        return frames_in(self.body)

    async def close(self) -> None:
        self._writer.transport.abort()
        with suppress(ConnectionError):
            await self._writer.wait_closed()


def _unchunked(raw: bytes) -> tuple[bytes, bool]:
    """Return what chunks hold, the last of them perhaps cut off, and whether it is the end."""
    parts, at = list[bytes](), 0
    while (line_end := raw.find(b"\r\n", at)) >= 0:
        size = int(raw[at:line_end], 16)
        if size == 0:
            return b"".join(parts), raw[at:] == _LAST
        begin = line_end + 2
        parts.append(raw[begin : begin + size])
        at = begin + size + 2
    return b"".join(parts), False
