"""How long an event loop is held: the bound that every body and file is tested against.

What counts is processor time of the whole process between two looks at it, as a busy machine
changes any other clock. A thread that gives way, as Python code does, lets the loop look every few
milliseconds; a library's call that gives nobody way shows, on whichever thread it runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

LONGEST_HOLD_S = 0.05
"""No loop of the service may be held for longer, whatever it is sent."""

_EVERY_S = 0.001


@dataclass(slots=True)
class Holding:
    """What was seen of a loop so far."""

    worst_s: float = 0.0  # processor time between two looks, at most
    spent_s: float = 0.0  # processor time in all


@contextlib.asynccontextmanager
async def holding() -> AsyncIterator[Holding]:
    """Watch the running loop until the block is left; what is seen then is complete.

    Let nothing else compute in the process meanwhile, and collect garbage before: what a test
    has left behind would be counted, too.
    """
    seen, began = Holding(), time.process_time()
    looking = asyncio.create_task(_look(seen))
    await asyncio.sleep(0)  # it has begun
    try:
        yield seen
    finally:
        await asyncio.sleep(2 * _EVERY_S)  # it sees the end, too
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)
        seen.spent_s = time.process_time() - began


async def _look(seen: Holding) -> None:
    last = time.process_time()
    while True:
        await asyncio.sleep(_EVERY_S)
        now = time.process_time()
        seen.worst_s, last = max(seen.worst_s, now - last), now
