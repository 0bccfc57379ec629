from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from circinus.api.serving.channel import Caller, CallServer
from circinus.deploy.workers.errors import LaunchFailed, TooManyRequests
from circinus.pipelines.errors import CircinusError, InvalidInput, OperatorFailed, Unavailable

ERRORS: list[CircinusError] = [
    InvalidInput.of("field", "must be good", 3),
    OperatorFailed("detect", "it raised"),
    TooManyRequests("many", retry_after_s=2.5),
    LaunchFailed("a/b", "no such file", "the log", killed=True),
]


def served(
    folder: Path, scene: Callable[[Caller, CallServer], Awaitable[None]], **handlers: object
) -> None:
    """Play a scene with both ends of a channel."""

    async def play() -> None:
        server = CallServer(handlers)  # type: ignore[arg-type]  # functions, all of them
        async with server.listening(folder / "socket"):
            caller = await Caller.connect(folder / "socket")
            assert caller is not None
            try:
                await scene(caller, server)
            finally:
                caller.close()

    asyncio.run(play())


def test_nobody_answers_where_nobody_listens(tmp_path: Path) -> None:
    assert asyncio.run(Caller.connect(tmp_path / "socket")) is None


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_errors_are_raised_as_they_were_there(tmp_path: Path, error: CircinusError) -> None:
    def fail() -> None:
        raise error

    async def scene(caller: Caller, _: CallServer) -> None:
        with pytest.raises(type(error)) as told:
            await caller.call("fail")
        assert str(told.value) == str(error)
        assert told.value.__dict__ == error.__dict__

    served(tmp_path, scene, fail=fail)


def test_what_is_asked_of_one_that_ends_is_unavailable(tmp_path: Path) -> None:
    async def play() -> None:
        async def end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(1)
            writer.close()

        async with await asyncio.start_unix_server(end, tmp_path / "socket"):
            caller = await Caller.connect(tmp_path / "socket")
            assert caller is not None
            for _ in range(2):  # while it is asked, and afterwards
                with pytest.raises(Unavailable, match="has ended"):
                    await caller.call("anything")
            caller.close()

    asyncio.run(play())


def test_one_that_ended_while_it_was_told_something_is_still_known_by_its_process(
    tmp_path: Path,
) -> None:
    async def play() -> None:
        async def end(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.transport.abort()

        async with await asyncio.start_unix_server(end, tmp_path / "socket"):
            caller = await Caller.connect(tmp_path / "socket")
            assert caller is not None
            while not caller.writer.transport.is_closing():
                caller.writer.write(b"x" * 1000)  # until that fails, which closes the socket
                await asyncio.sleep(0)
            await caller.lost()
            assert caller.writer.get_extra_info("socket").fileno() == -1
            assert caller.peer == os.getpid()
            caller.close()

    asyncio.run(play())


def test_calls_are_answered_as_they_are_done_whatever_came_first(tmp_path: Path) -> None:
    async def scene(caller: Caller, server: CallServer) -> None:
        go = asyncio.Event()

        async def slow(value: int) -> int:
            await go.wait()
            return value

        server.handlers = {"slow": slow, "quick": lambda value: 2 * value}
        first = asyncio.create_task(caller.call("slow", 1))
        assert await caller.call("quick", 21) == 42
        assert not first.done()
        assert server.callers == 1
        go.set()
        assert await first == 1
        assert caller.peer > 0

    served(tmp_path, scene)
