from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
import time
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from circinus.deploy.profiling.prefix_files import PrefixFiles
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.payload import Payload, encode
from circinus.profiler.prefix_cache import CacheEntry, EntryStore

# Writes and reads the same few keys for ever; every value tells its key and is long.
HAMMER = """
import sys
from itertools import count
from pathlib import Path
import numpy as np
from circinus.deploy.profiling.prefix_files import PrefixFiles
from circinus.profiler.prefix_cache import CacheEntry

store = PrefixFiles(Path(sys.argv[1]), 3_000_000)
seed = int(sys.argv[2])
for turn in count():
    key = (turn * seed) % 7
    output = np.full(40_000 + 1000 * seed, key, np.uint8)
    store.put("op", str(key), CacheEntry(output=output, seconds=1.0, output_bytes=key))
    back = store.get("op", str((turn + seed) % 7))
    if back is not None:
        assert (back.output == (turn + seed) % 7).all() and back.output_bytes == (turn + seed) % 7
    assert store.corrupt == 0
    if turn == 0:
        print("going", flush=True)
"""


def entry(output: Payload = "out", seconds: float = 1.0) -> CacheEntry:
    return CacheEntry(output=output, seconds=seconds, output_bytes=5)


def files(folder: Path) -> list[Path]:
    return [path for path in folder.glob("*/*") if path.is_file()]


def test_a_negative_limit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"store\.limit_bytes must be finite and >= 0, got -1"):
        PrefixFiles(tmp_path, -1)


def test_an_entry_is_found_by_another_process_object(tmp_path: Path) -> None:
    store: EntryStore = PrefixFiles(tmp_path)
    store.put("op", "input", entry({"a": [1, "two"]}))
    other = PrefixFiles(tmp_path)
    assert other.get("op", "input") == entry({"a": [1, "two"]})
    assert other.get("op", "other") is None
    assert other.get("other", "input") is None


def test_arrays_come_back_read_only(tmp_path: Path) -> None:
    PrefixFiles(tmp_path).put("op", "input", entry(np.arange(6).reshape(2, 3)))
    found = PrefixFiles(tmp_path).get("op", "input")
    assert found is not None
    assert isinstance(found.output, np.ndarray)
    assert np.array_equal(found.output, np.arange(6).reshape(2, 3))
    assert not found.output.flags.writeable


@given(data=st.data())
def test_a_file_cut_or_changed_anywhere_is_seen_and_removed(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("store")
    store = PrefixFiles(folder)
    store.put("op", "input", entry("x" * 50))
    (path,) = files(folder)
    whole = path.read_bytes()
    position = data.draw(st.integers(0, len(whole) - 1))
    if data.draw(st.booleans()):
        path.write_bytes(whole[:position])
    else:
        flipped = whole[position] ^ data.draw(st.integers(1, 255))
        path.write_bytes(whole[:position] + bytes([flipped]) + whole[position + 1 :])
    assert store.get("op", "input") is None
    assert store.corrupt == 1
    assert files(folder) == []


def test_a_file_under_the_name_of_another_is_not_believed(tmp_path: Path) -> None:
    store = PrefixFiles(tmp_path)
    store.put("op", "a", entry("of a"))
    (of_a,) = files(tmp_path)
    store.put("op", "b", entry("of b"))
    (of_b,) = [path for path in files(tmp_path) if path != of_a]
    of_b.write_bytes(of_a.read_bytes())
    assert store.get("op", "b") is None
    assert store.get("op", "a") == entry("of a")


def test_what_is_made_again_as_fast_as_read_is_not_kept(tmp_path: Path) -> None:
    store = PrefixFiles(tmp_path)
    store.put("op", "input", entry("x", seconds=1e-5))
    store.put("op", "large", entry("x" * 5_000_000, seconds=0.01))
    assert files(tmp_path) == []


def test_what_is_larger_than_the_limit_is_not_kept(tmp_path: Path) -> None:
    PrefixFiles(tmp_path, 10_000).put("op", "input", entry("x" * 9_000))
    assert files(tmp_path) == []


def test_the_least_recently_used_files_go(tmp_path: Path) -> None:
    store = PrefixFiles(tmp_path, 10 * 4096)
    for number in range(10):
        store.put("op", str(number), entry("x" * 1000))
        for path in files(tmp_path):
            os.utime(path, (path.stat().st_atime, path.stat().st_mtime - 10))
    store.get("op", "0")
    store.put("op", "new", entry("x" * 1000))
    assert sum(-(-path.stat().st_size // 4096) * 4096 for path in files(tmp_path)) <= 10 * 4096
    assert store.get("op", "0") is not None
    assert store.get("op", "new") is not None
    assert store.get("op", "1") is None


def test_a_folder_that_cannot_be_written_keeps_nothing_and_harms_nobody(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    store = PrefixFiles(tmp_path / "file")
    store.put("op", "input", entry())
    assert store.get("op", "input") is None


def test_a_file_from_before_waits_were_told_reads_as_all_computing(tmp_path: Path) -> None:
    rest = struct.pack(">dQ5d", 1.5, 5, 1.0, 0, 0, 0, 0.25) + encode("text")
    name = blake2b(b"op/input", digest_size=20).hexdigest()
    (tmp_path / name[:2]).mkdir()
    digest = blake2b(b"op/input/" + rest, digest_size=16).digest()
    (tmp_path / name[:2] / name[2:]).write_bytes(digest + rest)
    found = PrefixFiles(tmp_path).get("op", "input")
    assert found is not None
    assert (found.output, found.seconds, found.waited_s, found.used.usd) == ("text", 1.5, 0, 0.25)


def test_what_an_operator_waited_is_kept(tmp_path: Path) -> None:
    waited = replace(entry(), waited_s=0.75)
    PrefixFiles(tmp_path).put("op", "input", waited)
    assert PrefixFiles(tmp_path).get("op", "input") == waited


def test_a_stored_form_is_that_of_the_payload(tmp_path: Path) -> None:
    PrefixFiles(tmp_path).put("op", "input", entry("text"))
    (path,) = files(tmp_path)
    assert path.read_bytes()[80:] == encode("text")


@pytest.mark.slow
def test_processes_killed_at_random_leave_nothing_torn(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    root = str(Path(__file__).parents[2])
    for _ in range(12):
        running = [
            subprocess.Popen(
                [sys.executable, "-c", HAMMER, str(tmp_path), str(seed)],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=root,
            )
            for seed in (1, 2)
        ]
        for process in running:
            assert process.stdout is not None
            assert process.stdout.readline() == b"going\n"
        time.sleep(float(rng.uniform(0.01, 0.15)))
        for process in running:
            assert process.poll() is None  # an assertion in it would have ended it
            process.send_signal(signal.SIGKILL)
        for process in running:
            process.communicate()
        reader = PrefixFiles(tmp_path, 3_000_000)
        for key in range(7):
            found = reader.get("op", str(key))
            if found is not None:
                assert isinstance(found.output, np.ndarray)
                assert (found.output == key).all()
        assert reader.corrupt == 0
