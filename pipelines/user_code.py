"""Running code of users: awaiting it from blocking code, and ending what it forks.

All that is awaited runs in one loop of the process, in a thread of its own: shared clients belong
to a loop. A forked copy that returned from an operator would answer or plan once more over the
same descriptors, so only the process that entered a user's code leaves it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from inspect import isawaitable
from threading import Thread
from typing import TypeVar

T = TypeVar("T")


def settled(value: Awaitable[T] | T) -> T:
    """Return a value, once it is there where it has to be awaited."""
    return wait_for(value) if isawaitable(value) else value


def wait_for(work: Awaitable[T]) -> T:
    """Return the result of an awaitable; whatever it raises is raised."""
    return asyncio.run_coroutine_threadsafe(_awaited(work), _loop(os.getpid())).result()


async def _awaited(work: Awaitable[T]) -> T:
    return await work


@lru_cache(maxsize=1)
def _loop(process: int) -> asyncio.AbstractEventLoop:
    """Return the loop of this process: a copy of it has no thread of its parent's."""
    loop = asyncio.new_event_loop()
    Thread(target=loop.run_forever, name="async-steps", daemon=True).start()
    return loop


@contextmanager
def copies_ended() -> Iterator[None]:
    """End, in place of leaving the block, every copy of this process that was forked in it."""
    process = os.getpid()
    try:
        yield
    finally:
        if os.getpid() != process:
            message = f"fork_returned of={process}: the copy ends, and answers nothing\n"
            os.write(2, message.encode())  # not by a logger: a lock of it may have been held
            os._exit(0)
