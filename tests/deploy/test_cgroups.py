from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from circinus.deploy.local.cgroups import Cgroup, Cgroups, available, quota_of, start_of
from circinus.pipelines.errors import InvalidInput


@pytest.mark.parametrize("share", [0.0, 1.5, float("nan")])
def test_a_quota_is_for_a_share(share: float) -> None:
    with pytest.raises(InvalidInput, match="share must be in"):
        quota_of(share)


@given(st.integers(1, 20))
def test_a_quota_gives_the_share_in_slices_of_20_ms(steps: int) -> None:
    share = steps * 0.05
    quota_us, period_us = quota_of(share)
    assert quota_us / period_us == pytest.approx(share, rel=1e-3)
    assert 20_000 <= quota_us <= 20_001
    assert 20_000 <= period_us <= 400_000


def system(tmp_path: Path, mountinfo: str, membership: str) -> Cgroups | str:
    (tmp_path / "mountinfo").write_text(mountinfo)
    (tmp_path / "membership").write_text(membership)
    return available(tmp_path / "mountinfo", tmp_path / "membership")


def test_a_system_without_cgroups_is_told(tmp_path: Path) -> None:
    assert "no cgroups on this system" in str(available(tmp_path / "a", tmp_path / "b"))
    reason = system(tmp_path, "22 1 0:5 / /proc rw - proc proc rw\n", "0::/\n")
    assert reason == "no cgroup with a cpu controller is mounted"


def test_a_cgroup_that_may_not_be_written_is_told(tmp_path: Path) -> None:
    mount = f"31 23 0:28 / {tmp_path}/absent rw shared:1 - cgroup cgroup rw,cpu,cpuacct\n"
    reason = system(tmp_path, mount, "4:cpu,cpuacct:/\n")
    assert reason == f"{tmp_path}/absent (version 1) refuses: No such file or directory"


def test_version_2_needs_the_cpu_controller_handed_down(tmp_path: Path) -> None:
    """A stand-in for the kernel's folder, in which a cgroup is never empty of files."""
    mount = f"41 31 0:38 /box {tmp_path}/tree rw - cgroup2 cgroup2 rw\n"
    folder = tmp_path / "tree" / "service"
    folder.mkdir(parents=True)
    reason = system(tmp_path, mount, "0::/box/service\n")
    assert "tree/service (version 2) refuses" in str(reason)
    (folder / "cgroup.subtree_control").write_text("memory\n")
    system(tmp_path, mount, "0::/box/service\n")
    assert (folder / "cgroup.subtree_control").read_text() == "+cpu"


def test_version_2_writes_quota_and_period_into_one_file(tmp_path: Path) -> None:
    Cgroup(tmp_path, 2).limit(0.25)
    assert (tmp_path / "cpu.max").read_text() == "20000 80000"


def test_version_1_writes_them_into_two(tmp_path: Path) -> None:
    Cgroup(tmp_path, 1).limit(0.05)
    assert (tmp_path / "cpu.cfs_quota_us").read_text() == "20000"
    assert (tmp_path / "cpu.cfs_period_us").read_text() == "400000"


def test_a_cgroup_with_processes_is_not_removed(tmp_path: Path) -> None:
    cgroup = Cgroup(tmp_path / "gone", 1)
    assert cgroup.remove()
    assert cgroup.pids() == ()
    (tmp_path / "full").mkdir()
    full = Cgroup(tmp_path / "full", 1)
    full.add(42)
    assert full.pids() == (42,)
    assert not full.remove()


def test_only_what_dead_processes_left_behind_is_swept(tmp_path: Path) -> None:
    place = Cgroups(tmp_path, 1)
    own = place.create("7").folder
    reused = tmp_path / f"circinus-{os.getpid()}-1-7"  # our pid, but another start
    dead = tmp_path / "circinus-4194305-99-1"  # beyond the largest pid
    strange = tmp_path / "somebody-1-2-3"
    for folder in (reused, dead, strange):
        folder.mkdir()
    assert sorted(place.sweep()) == sorted([reused, dead])
    assert own.exists()
    assert strange.exists()


def test_the_start_of_a_process_is_read_past_a_strange_name() -> None:
    fields = " ".join(str(i) for i in range(3, 53))
    assert start_of(1, lambda _: f"1 (a) b (c)) {fields}") == 22
    assert start_of(4_194_305) is None


def test_this_systems_cgroups_are_tried_and_left_as_they_were() -> None:
    place = available()
    if isinstance(place, str):
        pytest.skip(place)
    assert not list(place.parent.glob(f"circinus-{os.getpid()}-*probe*"))
