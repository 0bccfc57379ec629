from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.processes import MARK, NotReady, Processes, kill_marked
from tests.cluster.slots import take


def test_a_program_that_ends_is_not_waited_for_and_its_log_is_told(tmp_path: Path) -> None:
    processes = Processes(folder=tmp_path)
    processes.start("failing", [sys.executable, "-c", "raise SystemExit('no such luck')"])

    with pytest.raises(NotReady, match=r"failing ended with code 1.\nno such luck"):
        processes.wait_until(lambda: False, "failing", "success", timeout_s=30.0)
    processes.stop_all(grace_s=0)


def test_a_program_that_is_not_ready_in_time_is_told(tmp_path: Path) -> None:
    processes = Processes(folder=tmp_path)
    processes.start("slow", ["sleep", "60"])

    with pytest.raises(NotReady, match=r"an answer within 0.01 s is not so"):
        processes.wait_until(lambda: False, "slow", "an answer", timeout_s=0.01)
    pid = processes.pid("slow")
    processes.stop_all(grace_s=5.0)
    assert not Path(f"/proc/{pid}").exists()


def test_what_a_killed_cluster_left_is_killed_by_its_mark(tmp_path: Path) -> None:
    left, other = marked(str(tmp_path)), marked(f"{tmp_path}-other")
    try:
        assert kill_marked(tmp_path) == [left.pid]
        assert left.wait(10.0) < 0
        assert other.poll() is None
    finally:
        for process in (left, other):
            process.kill()
            process.wait()


def marked(mark: str) -> subprocess.Popen[str]:
    """Start a sleeper with this mark; give it once it runs.

    Before, the kernel may show no environment of it yet.
    """
    process = subprocess.Popen(
        ["sh", "-c", "echo runs; exec sleep 60"],
        env={**os.environ, MARK: mark},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "runs\n"
    process.stdout.close()
    return process


def test_two_clusters_do_not_share_a_place() -> None:
    one, two = take(), take()
    try:
        assert one.number != two.number
        assert one.network != two.network
    finally:
        one.release()
        two.release()
