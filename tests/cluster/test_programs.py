"""Building the cluster's programs: what is missing is one line, and what takes long is told."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.cluster import debian, programs, progress

ROOT = Path(__file__).resolve().parents[2]


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a module with nothing but what `folder/bin` has, and a cache with nothing in it."""
    environment = {
        **os.environ,
        "PATH": str(folder / "bin"),
        "XDG_CACHE_HOME": str(folder / "cache"),
        "TMPDIR": str(folder),
    }
    command = [sys.executable, "-m", *words]
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )


def fake_go(folder: Path, build: str, version: str = "go1.26.1") -> None:
    """Put a `go` there that knows its version, and builds as the shell script says."""
    (folder / "bin").mkdir()
    file = folder / "bin" / "go"
    file.write_text(f'#!/bin/sh\nif [ "$1" = env ]; then echo {version}; exit; fi\n{build}\n')
    file.chmod(0o755)


@pytest.fixture
def with_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose `bin` comes first, and a cache with nothing in it."""
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


@pytest.mark.parametrize("version", [None, "go1.19.8", "nonsense"])
def test_without_a_go_that_is_new_enough_one_line_says_what_to_install(
    tmp_path: Path, version: str | None
) -> None:
    if version is not None:
        fake_go(tmp_path, "exit 1", version)

    done = run(tmp_path, "tests.cluster.programs")

    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    told = "error: etcd is not built: install Go 1.21 or newer, which fetches the version"
    assert done.stderr.startswith(told)
    assert version is None or f"here is {version}" in done.stderr


@pytest.mark.parametrize("words", [["tests.cluster.demonstration"], ["tests.cluster", "start"]])
def test_without_debian_packages_one_line_installs_them(tmp_path: Path, words: list[str]) -> None:
    done = run(tmp_path, *words)

    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    told, *more = done.stderr.splitlines()
    assert told.startswith("error: apt-get install -y ")
    assert "openssl" in told
    assert all(line.startswith("error: install Go") for line in more)


def test_what_go_says_of_an_error_is_told_and_what_it_fetches_is_not(with_go: Path) -> None:
    fake_go(with_go, "echo 'go: downloading a v1' >&2; echo 'x.go:1: no such luck' >&2; exit 2")

    with pytest.raises(programs.NotBuilt) as failed:
        programs.build(programs.HELM, lambda _: None)

    assert str(failed.value) == "building helm ended with code 2:\nx.go:1: no such luck"
    assert not programs.HELM.path.exists()


def test_a_program_is_built_once_and_its_size_is_told(with_go: Path) -> None:
    fake_go(with_go, 'while [ "$1" != -o ]; do shift; done; echo ok > "$2"')
    told: list[str] = []

    paths = [programs.build(programs.HELM, told.append) for _ in range(2)]

    assert paths == [programs.HELM.path] * 2
    assert programs.HELM.path.read_text() == "ok\n"
    assert len(told) == 2
    assert told[0] == "helm: is built"
    assert re.fullmatch(r"helm: built in \d+ s, 0 MB", told[1])


def test_packages_are_told_while_they_are_compiled(
    with_go: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The script compiles on until it is seen that somebody was told of its two packages."""
    seen = with_go / "seen"
    wait = f"while [ ! -e {seen} ]; do sleep 0.02; done"
    fake_go(
        with_go,
        f"echo 'go: downloading a v1' >&2; echo a/b >&2; echo c/d >&2; {wait}\n"
        'while [ "$1" != -o ]; do shift; done; echo ok > "$2"',
    )
    told: list[str] = []

    def tell(line: str) -> None:
        told.append(line)
        if "2 packages compiled, c/d" in line:
            seen.touch()

    monkeypatch.setattr(progress, "EVERY_S", 0.05)
    programs.build(programs.HELM, tell)

    assert any(re.fullmatch(r"helm: 2 packages compiled, c/d, \d+ s", line) for line in told)


def test_who_waits_for_another_build_is_told(
    with_go: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_go(with_go, 'while [ "$1" != -o ]; do shift; done; echo ok > "$2"')
    programs.HELM.folder.mkdir(parents=True)
    monkeypatch.setattr(progress, "EVERY_S", 0.05)
    waiting = threading.Event()

    def tell(line: str) -> None:
        if "waits for somebody who builds it" in line:
            waiting.set()

    with programs.alone(programs.HELM.folder / ".helm.lock"):
        thread = threading.Thread(target=programs.build, args=(programs.HELM, tell))
        thread.start()
        assert waiting.wait(30.0)
        assert not programs.HELM.path.exists()
    thread.join(30.0)
    assert programs.HELM.path.exists()


def test_nothing_is_told_after_the_end() -> None:
    told: list[str] = []
    with progress.told(lambda: "on it", told.append, every_s=0.01):
        end = time.monotonic() + 30.0
        while len(told) < 2:
            assert time.monotonic() < end
            time.sleep(0.01)
    count = len(told)
    time.sleep(0.05)
    assert len(told) == count
    assert told[0] == "on it, 0 s"


def test_what_is_missing_is_named_once_with_its_package(tmp_path: Path) -> None:
    nothing = str(tmp_path)
    assert debian.lacking("ctr", "containerd", "runc", path=nothing) == (
        "apt-get install -y containerd runc"
    )
    assert debian.lacking(path=nothing) == ""
    for name in ("ctr", "containerd"):
        (tmp_path / name).touch(mode=0o755)
    assert debian.lacking("ctr", "containerd", path=nothing) == ""


def test_the_page_has_the_line_that_installs_everything() -> None:
    assert debian.LINE in (ROOT / "docs/kubernetes.md").read_text(encoding="utf-8")


def test_the_checks_of_a_merge_install_no_other_packages() -> None:
    text = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    found = re.search(r"^node_packages=\((.*)\)$", text, re.MULTILINE)
    assert found is not None
    assert set(found[1].split()) <= set(debian.PACKAGES.values())
