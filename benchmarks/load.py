"""Sends requests to a service, from a process of its own: `python -m benchmarks.load`.

Closed loop: each of so many clients sends its next request when it has the answer to the last.
Open loop: requests arrive at random (Poisson), whatever becomes of those before. HTTP is spoken
by hand, so that the load costs little beside what it measures.

    standard input    {port, path, bodies: [text], clients | rate_per_s, seconds, seed,
                       method: POST if left out, etag: whether the last one is sent back}
    standard output   {seconds, cpu_s, answers: [[status, seconds from sending, of operators]]}
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

Answer = tuple[int, float, float]


class Connection:
    """One that is kept, to send one request at a time."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def send(self, message: bytes) -> tuple[int, bytes, str]:
        """Return status, body and ETag of the answer."""
        if self._streams is None or self._streams[0].at_eof():  # idle for long, it was ended
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        writer.write(message)
        head = await reader.readuntil(b"\r\n\r\n")
        lines = head.decode("latin-1").lower().split("\r\n")
        told = dict(line.partition(": ")[::2] for line in lines[1:])
        if told.get("connection") == "close":
            self._streams = None
        body = await reader.readexactly(int(told.get("content-length", 0)))
        return int(lines[0].split()[1]), body, told.get("etag", "")

    def close(self) -> None:
        """End it."""
        if self._streams is not None:
            self._streams[1].close()


class Load:
    """What is sent, and what came back."""

    def __init__(self, asked: Mapping[str, Any]) -> None:
        self._asked = asked
        self._random = random.Random(asked["seed"])
        self._idle: list[Connection] = []
        self._etag = ""
        self.answers: list[Answer] = []
        head = f"{asked.get('method', 'POST')} {asked['path']} HTTP/1.1\r\n"
        head += f"Host: 127.0.0.1:{asked['port']}\r\nContent-Type: application/json\r\n"
        bodies = [body.encode() for body in asked["bodies"]]
        self._messages = [
            (f"{head}Content-Length: {len(body)}\r\n".encode(), b"\r\n" + body) for body in bodies
        ]

    async def run(self) -> float:
        """Send until the time is over, wait for the last answers; give the seconds it took."""
        began = time.perf_counter()
        end = began + self._asked["seconds"]
        if "clients" in self._asked:
            await asyncio.gather(*(self._client(end) for _ in range(self._asked["clients"])))
        else:
            await self._arrivals(end)
        took_s = time.perf_counter() - began
        for connection in self._idle:
            connection.close()
        return took_s

    async def _client(self, end: float) -> None:
        while time.perf_counter() < end:
            await self._one()

    async def _arrivals(self, end: float) -> None:
        tasks, at = [], time.perf_counter()
        while (at := at + self._random.expovariate(self._asked["rate_per_s"])) < end:
            await asyncio.sleep(max(at - time.perf_counter(), 0))
            tasks.append(asyncio.create_task(self._one()))
        await asyncio.gather(*tasks)

    async def _one(self) -> None:
        head, rest = self._random.choice(self._messages)
        known = f"If-None-Match: {self._etag}\r\n" if self._etag else ""
        connection = self._idle.pop() if self._idle else Connection(self._asked["port"])
        began = time.perf_counter()
        status, body, etag = await connection.send(head + known.encode() + rest)
        seconds = time.perf_counter() - began
        self._idle.append(connection)
        self._etag = etag if self._asked.get("etag") else ""
        operators_s = 0.0
        with suppress(ValueError, KeyError):
            operators_s = sum(json.loads(body)["operator_s"].values())
        self.answers.append((status, seconds, operators_s))


def main() -> None:
    """Do what standard input asks."""
    load = Load(json.load(sys.stdin))
    seconds = asyncio.run(load.run())
    times = os.times()
    cpu_s = times.user + times.system
    json.dump({"seconds": seconds, "cpu_s": cpu_s, "answers": load.answers}, sys.stdout)


if __name__ == "__main__":
    main()
