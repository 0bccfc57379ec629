"""What clients may take of a server, over real sockets on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import uvicorn
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from circinus.api.http.bodies import chunks, read_body
from circinus.api.http.errors import ClientGone, TooSlow, problem_of
from circinus.api.serving.bounded import EdgeLimits, bounded
from circinus.api.serving.proxy import Proxy, Upstream
from circinus.pipelines.errors import CircinusError

LIMITS = EdgeLimits(connections=2, head_bytes=1000, head_s=0.3)
GOOD = b"POST /v1/queries HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}"
PATIENCE_S = 30.0
Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connect = Callable[[], Awaitable[Ends]]


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with how much came."""
    try:
        body = await read_body(Headers(scope=scope), receive, 2**20)
    except CircinusError as error:
        await problem_of(error, scope["path"])(scope, receive, send)
        return
    head = [(b"content-length", b"%d" % len(text := b"%d" % len(body)))]
    await send({"type": "http.response.start", "status": 200, "headers": head})
    await send({"type": "http.response.body", "body": text})


@contextlib.asynccontextmanager
async def serving(limits: EdgeLimits = LIMITS, app: ASGIApp = echo) -> AsyncIterator[Connect]:
    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        app,
        http=bounded(limits),
        ws="none",
        lifespan="off",
        log_config=None,
        timeout_graceful_shutdown=1,
    )
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve(sockets=[listening]))
    opened: list[asyncio.StreamWriter] = []

    async def connect() -> Ends:
        ends = await asyncio.open_connection(*listening.getsockname())
        opened.append(ends[1])
        return ends

    try:
        yield connect
    finally:
        for writer in opened:
            writer.close()
        server.should_exit = True
        await task


async def answered(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
    """Return status, headers and body of the next answer; 0 if the connection is closed."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    except (asyncio.IncompleteReadError, ConnectionResetError):
        return 0, {}, b""
    told = dict(line.lower().split(": ", 1) for line in head[1:] if line)
    return int(head[0].split()[1]), told, await reader.readexactly(int(told["content-length"]))


def run(scene: Callable[[Connect], Awaitable[None]], limits: EdgeLimits = LIMITS) -> None:
    async def whole() -> None:
        async with serving(limits) as connect, asyncio.timeout(PATIENCE_S):
            await scene(connect)

    asyncio.run(whole())


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"", 408),
        (b"GET / HTTP/1.1\r\nHost: a\r\n", 408),
        (b"GET / HTTP/1.1\r\nX: " + b"a" * 900, 408),
        (b"GET / HTTP/1.1\r\nX: " + b"a" * 1001, 431),
        (b"GET / HTTP/1.1\r\nX: " + b"a" * 10**6, 431),
        (b"GET /" + b"a" * 10**6, 431),
        (b"GET / HTTP/1.1\r\n" + b"X: a\r\n" * 10**4, 431),
        (b"GET / HTTP/1.1\r\nX: " + b"a" * 1000 + b"\r\n\r\n", 431),
        (b"no HTTP\r\n\r\n", 400),
        (b"\0" * 100, 400),
        (b"\x16\x03\x01\x02\0\x01\0", 400),  # TLS
        (b"GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 400),
        (GOOD[:-2].replace(b"Content-Length: 2", b"Transfer-Encoding: chunked") + b"zz\r\n", 400),
    ],
)
def test_what_is_no_request_is_refused_in_words_and_closed(sent: bytes, status: int) -> None:
    async def scene(connect: Connect) -> None:
        reader, writer = await connect()
        writer.write(sent)
        code, told, body = await answered(reader)
        assert code == status
        assert told["content-type"] == "application/problem+json"
        assert told["connection"] == "close"
        assert json.loads(body)["status"] == status
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""

    run(scene)


def test_trailers_without_end_are_held_by_nobody() -> None:
    async def scene(connect: Connect) -> None:
        reader, writer = await connect()
        chunked = GOOD.replace(b"Content-Length: 2", b"Transfer-Encoding: chunked")[:-2]
        writer.write(chunked + b"2\r\n{}\r\n0\r\n")
        for _ in range(100):
            writer.write(b"X: " + b"a" * 1000)
            with contextlib.suppress(ConnectionResetError):
                await writer.drain()
            await asyncio.sleep(0)
        assert (await answered(reader))[0] in {0, 431}  # 0: what it did not read resets it

    run(scene)


def test_more_connections_than_are_taken_are_told_when_to_come_back() -> None:
    async def scene(connect: Connect) -> None:
        ends = [await connect() for _ in range(3)]
        for _, writer in ends:
            writer.write(GOOD)
        codes = [await answered(reader) for reader, _ in ends]
        assert [code for code, _, _ in codes] == [200, 200, 503]
        assert codes[2][1]["retry-after"] == "1"
        assert codes[2][1]["connection"] == "close"
        ends[0][1].close()
        await ends[0][1].wait_closed()
        code = 0
        while code != 200:  # until the server has seen it
            reader, writer = await connect()
            writer.write(GOOD)
            code, *_ = await answered(reader)

    run(scene)


def test_connections_far_beyond_those_are_closed_without_a_word() -> None:
    async def scene(connect: Connect) -> None:
        ends = [await connect() for _ in range(5)]
        assert (await answered(ends[4][0]))[0] == 0

    run(scene, EdgeLimits(connections=2, head_s=20.0))


def test_hundreds_of_requests_at_once_are_all_answered() -> None:
    async def scene(connect: Connect) -> None:
        reader, writer = await connect()
        writer.write(GOOD * 3000)
        codes = [(await answered(reader))[0] for _ in range(3000)]
        assert codes == [200] * 3000

    run(scene, EdgeLimits(connections=2))


def test_an_idle_connection_makes_way_for_a_new_one() -> None:
    async def scene(connect: Connect) -> None:
        idle, busy = await connect(), await connect()
        idle[1].write(GOOD)
        assert (await answered(idle[0]))[0] == 200
        busy[1].write(GOOD[:-1])  # its body is under way
        await asyncio.sleep(1.1)
        reader, writer = await connect()
        writer.write(GOOD)
        assert (await answered(reader))[0] == 200
        assert (await answered(idle[0]))[0] == 0
        busy[1].write(GOOD[-1:])
        assert (await answered(busy[0]))[0] == 200

    run(scene, EdgeLimits(connections=2))


def test_health_is_answered_however_many_are_connected() -> None:
    async def scene(connect: Connect) -> None:
        ends = [await connect() for _ in range(3)]
        for _, writer in ends[:2]:
            writer.write(GOOD[:-1])
        await asyncio.sleep(0.05)
        reader, writer = ends[2]
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
        assert (await answered(reader))[0] == 200

    run(scene, EdgeLimits(connections=2))


def test_an_upgrade_is_a_request_like_any_other_and_the_last_of_its_connection() -> None:
    async def scene(connect: Connect) -> None:
        reader, writer = await connect()
        upgrade = b"Host: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        key = b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        writer.write(b"GET / HTTP/1.1\r\n" + upgrade + key)
        assert (await answered(reader))[0] == 200
        assert await reader.read() == b""

    run(scene)


def test_bodies_large_and_in_parts_and_one_request_after_the_other_are_taken() -> None:
    async def scene(connect: Connect) -> None:
        reader, writer = await connect()
        large = 2**19
        for _ in range(3):
            writer.write(GOOD[:40])
            await writer.drain()
            writer.write(GOOD[40:])
            assert (await answered(reader))[2] == b"2"
            writer.write(GOOD.replace(b": 2", b": %d" % large)[:-2] + bytes(large))
            assert (await answered(reader))[2] == b"%d" % large

    run(scene, EdgeLimits(connections=2, head_bytes=1000))


def parts(*bodies: bytes, then: Message | None = None) -> Receive:
    """Return what receives a body in parts, and then something else or nothing ever."""
    left = [{"type": "http.request", "body": body, "more_body": True} for body in bodies]

    async def receive() -> Message:
        if left:
            return left.pop(0)
        if then is None:
            await asyncio.Event().wait()
        return then or {}

    return receive


def test_a_body_that_stops_is_given_up_and_one_that_ends_early_is_no_body() -> None:
    async def taken(receive: Receive) -> bytes:
        return b"".join([chunk async for chunk in chunks(receive, patience_s=0.05)])

    with pytest.raises(TooSlow, match=r"at most 0.05 s and 1 s for 16384 bytes, got 3 bytes"):
        asyncio.run(taken(parts(b"abc")))
    with pytest.raises(ClientGone, match="before the end of the body"):
        asyncio.run(taken(parts(b"abc", then={"type": "http.disconnect"})))
    whole = parts(b"abc", then={"type": "http.request", "body": b"d"})
    assert asyncio.run(taken(whole)) == b"abcd"


def test_what_waits_for_the_service_is_bounded_but_not_who_watches_it(tmp_path: Path) -> None:
    arrived = asyncio.Event()

    async def never(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        arrived.set()
        with contextlib.suppress(asyncio.IncompleteReadError):
            await reader.readexactly(10**6)
        writer.close()

    async def asked(proxy: Proxy, path: str, method: str = "GET") -> list[Message]:
        sent: list[Message] = []

        async def send(message: Message) -> None:
            sent.append(message)

        async def receive() -> Message:
            if not sent:
                await asyncio.sleep(0)
            return {"type": "http.request", "body": b"", "more_body": False}

        await proxy(scope_of(path, method), receive, send)
        return sent

    async def scene() -> None:
        server = await asyncio.start_unix_server(never, tmp_path / "service.sock")
        proxy = Proxy(Upstream.at(tmp_path / "service.sock"), 1000, 1)
        first = asyncio.create_task(asked(proxy, "/v1/queries"))
        await arrived.wait()
        refused = await asked(proxy, "/v1/queries")
        assert refused[0]["status"] == 503
        assert (b"retry-after", b"1") in refused[0]["headers"]
        arrived.clear()
        watching = asyncio.create_task(asked(proxy, "/readyz"))
        await arrived.wait()
        arrived.clear()
        example = asyncio.create_task(asked(proxy, "/v1/queries/q-1/requests", "POST"))
        await arrived.wait()
        for task in (first, watching, example):
            task.cancel()
        await asyncio.gather(first, watching, example, return_exceptions=True)
        server.close()

    asyncio.run(scene())


async def at_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer a request, and close the connection."""
    with contextlib.suppress(asyncio.IncompleteReadError):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")
    writer.close()


def no_body() -> Receive:
    """Return what receives a request without a body, and then nothing."""
    left = [{"type": "http.request", "body": b""}]

    async def receive() -> Message:
        if not left:
            await asyncio.Event().wait()
        return left.pop()

    return receive


def scope_of(path: str, method: str = "GET") -> Scope:
    return {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(b"host", b"a")],
    }


def test_a_client_that_has_an_answer_whole_can_send_its_next_request(tmp_path: Path) -> None:
    async def scene() -> None:
        service = await asyncio.start_unix_server(at_once, tmp_path / "service.sock")
        proxy = Proxy(Upstream.at(tmp_path / "service.sock"), 1000, 1)
        statuses: list[int] = []

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])
            elif message["body"] and len(statuses) < 3:  # a client sees that it has all
                await proxy(scope_of("/v1/queries"), no_body(), send)

        await proxy(scope_of("/v1/queries"), no_body(), send)
        assert statuses == [200, 200, 200]
        service.close()

    asyncio.run(scene())


def test_an_answer_that_was_sent_whole_is_not_followed_by_another(tmp_path: Path) -> None:
    async def scene() -> None:
        service = await asyncio.start_unix_server(at_once, tmp_path / "service.sock")
        proxy = Proxy(Upstream.at(tmp_path / "service.sock"), 1000, 1)
        sent: list[Message] = []
        complete = asyncio.Event()

        async def send(message: Message) -> None:
            sent.append(message)
            if message["type"] == "http.response.body" and not message.get("more_body"):
                complete.set()
                await asyncio.sleep(0.01)  # the client has it all before this returns

        async def receive() -> Message:  # as servers have it: a request that is over has left
            await complete.wait()
            return {"type": "http.disconnect"}

        async def body_first() -> Message:
            receiving.pop(0)
            return {"type": "http.request", "body": b""}

        receiving = [body_first]

        async def both() -> Message:
            return await (receiving[0]() if receiving else receive())

        await proxy(scope_of("/v1/queries"), both, send)
        starts = [each for each in sent if each["type"] == "http.response.start"]
        assert [each["status"] for each in starts] == [200]
        service.close()

    asyncio.run(scene())


def test_whoever_takes_nothing_in_of_a_stream_is_cut_off(tmp_path: Path) -> None:
    sent = 0

    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            while True:
                writer.write(b"10000\r\n" + bytes(2**16) + b"\r\n")
                await writer.drain()
                sent += 2**16
        writer.close()

    async def scene() -> None:
        proxy = Proxy(Upstream.at(tmp_path / "service.sock"), 1000, 1, patience_s=0.2)
        service = await asyncio.start_unix_server(endless, tmp_path / "service.sock")
        async with serving(EdgeLimits(connections=1, apart=proxy.streams), proxy) as connect:
            reader, writer = await connect()
            writer.write(
                b"GET /v1/events HTTP/1.1\r\nHost: a\r\nAccept: text/event-stream\r\n\r\n"
            )
            assert b"200" in await reader.readline()
            await reader.readuntil(b"\r\n\r\n")
            assert proxy.streams() == 1
            while proxy.streams():
                await asyncio.sleep(0.05)
            with contextlib.suppress(ConnectionError):
                assert len(await reader.read()) < sent
        service.close()
        assert sent < 2**25  # what sockets hold, and no more

    async def whole() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await scene()

    asyncio.run(whole())


def test_connections_of_streams_are_counted_apart() -> None:
    streams: list[object] = []

    async def code_of(connect: Connect) -> int:
        reader, writer = await connect()
        writer.write(GOOD)
        return (await answered(reader))[0]

    async def scene(connect: Connect) -> None:
        assert [await code_of(connect) for _ in range(3)] == [200, 200, 503]
        streams.append("one of these")
        assert [await code_of(connect) for _ in range(2)] == [200, 503]

    run(scene, EdgeLimits(connections=2, apart=lambda: len(streams)))
