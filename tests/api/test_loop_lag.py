from __future__ import annotations

import asyncio

from circinus.api.http.loop_lag import LoopLag
from circinus.pipelines.clock import ManualClock


def test_a_loop_that_is_held_up_is_late_by_so_much() -> None:
    async def scene() -> None:
        clock = ManualClock()
        lag = LoopLag(clock)
        lag.start()
        assert lag.seconds() == 0.0
        clock.seconds = 0.51  # it should have been looked at 0.01 s after the start
        assert lag.seconds() == 0.5
        lag.stop()

    asyncio.run(scene())
