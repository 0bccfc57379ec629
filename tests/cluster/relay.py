"""What a kube-proxy does, for one Service: takes connections and leads each to a pod of it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

_LARGEST = 2**16


@contextmanager
def relay(host: str, targets: Callable[[], Sequence[tuple[str, int]]]) -> Iterator[int]:
    """Return a port of this machine; each connection goes to the first target."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            found = await asyncio.to_thread(targets)
            if found:
                async with asyncio.timeout(5.0):
                    there, back = await asyncio.open_connection(*found[0])
                await asyncio.gather(_copy(reader, back), _copy(there, writer))
        except (OSError, TimeoutError):
            pass  # nobody is there: the connection ends
        finally:
            writer.close()

    async def listen() -> asyncio.Server:
        return await asyncio.start_server(serve, host, 0)

    async def end(server: asyncio.Server) -> None:
        server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    server = asyncio.run_coroutine_threadsafe(listen(), loop).result()
    try:
        yield int(server.sockets[0].getsockname()[1])
    finally:
        asyncio.run_coroutine_threadsafe(end(server), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(_LARGEST):
            writer.write(data)
            await writer.drain()
    with suppress(OSError):
        writer.close()
