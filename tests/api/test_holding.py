from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from tests.api.holding import Holding, holding

BUSY_S = 0.2


def held(busy: Callable[[], object]) -> Holding:
    async def scene() -> Holding:
        async with holding() as seen:
            await asyncio.to_thread(busy)
        return seen

    return asyncio.run(scene())


def test_a_call_that_gives_nobody_way_holds_the_loop_from_any_thread() -> None:
    numbers = list(range(3_000_000))
    began = time.process_time()
    sum(numbers)
    alone_s = time.process_time() - began

    seen = held(lambda: sum(numbers))

    assert seen.worst_s > alone_s / 2


def test_python_on_another_thread_does_not_hold_the_loop() -> None:
    def counts() -> None:
        until = time.thread_time() + BUSY_S
        while time.thread_time() < until:
            pass

    seen = held(counts)

    assert seen.spent_s >= BUSY_S
    assert seen.worst_s < BUSY_S / 2


def test_a_block_that_fails_is_watched_no_more() -> None:
    async def scene() -> None:
        with pytest.raises(KeyError):
            async with holding():
                raise KeyError
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(scene())
