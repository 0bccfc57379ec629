"""What workers write is bounded, each file and all of them."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from circinus.deploy.local.launcher import WorkerLogs, tail
from circinus.deploy.runtime.instances import InstanceKey

KEY = InstanceKey("q-1", "cloud", "p-1", 0)


@pytest.fixture
def logs(tmp_path: Path) -> WorkerLogs:
    return WorkerLogs(tmp_path / "logs", file_bytes=1000, all_bytes=2500, look_s=0.01)


def test_a_log_that_grows_is_cut_and_its_latest_half_is_there(logs: WorkerLogs) -> None:
    log = logs.open(KEY, "0")

    async def scenario() -> None:
        with os.fdopen(os.open(log, os.O_CREAT | os.O_APPEND | os.O_WRONLY), "ab", 0) as worker:
            bounding = asyncio.create_task(logs.bound(log))
            worker.write(b"a" * 1000)
            await asyncio.sleep(0.1)
            assert log.stat().st_size == 1000
            worker.write(b"b" * 1000)
            while log.stat().st_size > 1000:
                await asyncio.sleep(0.01)
            worker.write(b"c")
            bounding.cancel()

    asyncio.run(scenario())
    assert log.read_bytes() == b"c"  # who appends goes on at the new end
    assert log.with_suffix(".log.1").read_bytes() == b"b" * 500


def test_logs_of_workers_that_ended_make_room_the_oldest_first(logs: WorkerLogs) -> None:
    first, second, third = (logs.open(KEY, str(n)) for n in range(3))
    for age, log in enumerate((first, second, third)):
        log.write_bytes(b"x" * 1000)
        os.utime(log, (age, age))
    logs.close(second)
    logs.close(third)
    logs.open(KEY, "3")
    assert (first.exists(), second.exists(), third.exists()) == (True, False, True)


def test_the_tail_of_a_log_is_its_last_lines_and_no_more_of_it_is_read(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("".join(f"{n}\n" for n in range(100_000)))
    assert tail(log).splitlines() == [str(n) for n in range(99_980, 100_000)]
    assert tail(tmp_path / "b.log").startswith("(no log: ")
