"""Calls to another process of the same user, over a Unix socket.

A message is four bytes of length and a pickle. A call is (number, name, arguments), its answer
(number, whether it succeeded, its result or error). Only processes of the same user reach it, and
they have full control of each other anyway.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import pickle  # noqa: TID251 - messages of our own processes, no payloads of clients
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from circinus.pipelines.errors import Unavailable

_LENGTH = struct.Struct(">I")
_PEER = struct.Struct("3i")  # pid, user and group of the process at the other end
_RETRY_AFTER_S = 1.0

Handlers = Mapping[str, Callable[..., object]]
"""Functions by name; what is awaitable is awaited."""


@dataclass(slots=True, eq=False)
class CallServer:
    """Answers calls by functions of their names."""

    handlers: Handlers
    _callers: set[asyncio.StreamWriter] = field(default_factory=set, init=False)
    _answers: set[asyncio.Task[None]] = field(default_factory=set, init=False)

    @contextlib.asynccontextmanager
    async def listening(self, path: Path) -> AsyncIterator[None]:
        """Answer at a socket until the block is left; calls in hand are finished."""
        server = await asyncio.start_unix_server(self._serve, path)
        try:
            yield
        finally:
            path.unlink(missing_ok=True)
            server.close()
            await asyncio.gather(*self._answers, return_exceptions=True)
            for writer in self._callers:
                writer.close()
            await server.wait_closed()
            while self._callers:  # their tasks have yet to notice
                await asyncio.sleep(0)

    @property
    def callers(self) -> int:
        """How many are connected."""
        return len(self._callers)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if _peer(writer)[1] != os.getuid():
            writer.close()
            return
        self._callers.add(writer)
        try:
            while True:
                number, name, arguments = await _read(reader)
                task = asyncio.create_task(self._answer(writer, number, name, arguments))
                self._answers.add(task)
                task.add_done_callback(self._answers.discard)
        except (EOFError, OSError):
            pass  # the caller is gone; its call goes on
        finally:
            self._callers.discard(writer)
            writer.close()

    async def _answer(
        self, writer: asyncio.StreamWriter, number: int, name: str, arguments: tuple[Any, ...]
    ) -> None:
        try:
            result = self.handlers[name](*arguments)
            answer = (number, True, await result if isinstance(result, Awaitable) else result)
        except Exception as error:  # noqa: BLE001 - the caller's to handle
            answer = (number, False, error)
        with contextlib.suppress(OSError):
            _write(writer, answer)
            await writer.drain()


@dataclass(slots=True, eq=False)
class Caller:
    """One end of a connection; InvalidInput and its like are raised as they were there."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    peer: int = field(init=False)
    """Process id of the other end; known when that is gone, too."""
    _numbers: Iterator[int] = field(default_factory=itertools.count, init=False)
    _pending: dict[int, asyncio.Future[Any]] = field(default_factory=dict, init=False)
    _listens: asyncio.Task[None] = field(init=False)

    def __post_init__(self) -> None:
        self.peer = _peer(self.writer)[0]  # while the socket is open
        self._listens = asyncio.create_task(self._listen())

    @classmethod
    async def connect(cls, path: Path) -> Caller | None:
        """Return a caller of the process at a socket; None: none answers."""
        try:
            return cls(*await asyncio.open_unix_connection(path))
        except OSError:
            return None

    async def call(self, name: str, *arguments: object) -> Any:  # noqa: ANN401 - the name's
        """Return the result of a function there; Unavailable if the process ends before."""
        if self._listens.done():
            raise _gone()
        number = next(self._numbers)
        future = self._pending[number] = asyncio.get_running_loop().create_future()
        try:
            _write(self.writer, (number, name, arguments))
            return await future
        finally:
            del self._pending[number]

    async def lost(self) -> None:
        """Return when the other end is gone."""
        await asyncio.wait({self._listens})

    def close(self) -> None:
        """End the connection."""
        self._listens.cancel()
        self.writer.close()

    async def _listen(self) -> None:
        try:
            while True:
                number, well, result = await _read(self.reader)
                future = self._pending.get(number)
                if future is not None and not future.done():
                    future.set_result(result) if well else future.set_exception(result)
        except (EOFError, OSError):
            pass
        finally:
            for future in self._pending.values():
                if not future.done():
                    future.set_exception(_gone())


def to_bytes(message: object) -> bytes:
    """Return what `from_bytes` restores in another process of ours."""
    return pickle.dumps(message)


def from_bytes(data: bytes) -> Any:  # noqa: ANN401 - whatever it was
    """Return a message of another process of ours: never one from elsewhere."""
    return pickle.loads(data)


def _gone() -> Unavailable:
    reason = "what runs deployments has ended, and is started again"
    return Unavailable(reason, retry_after_s=_RETRY_AFTER_S)


def _peer(writer: asyncio.StreamWriter) -> tuple[int, int, int]:
    end: socket.socket = writer.get_extra_info("socket")
    credentials = end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    pid, user, group = _PEER.unpack(credentials)
    return pid, user, group


async def _read(reader: asyncio.StreamReader) -> Any:  # noqa: ANN401 - whatever was pickled
    (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    return from_bytes(await reader.readexactly(length))


def _write(writer: asyncio.StreamWriter, message: object) -> None:
    data = to_bytes(message)
    writer.write(_LENGTH.pack(len(data)) + data)
