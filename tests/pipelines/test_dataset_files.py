"""Data sets as one file: what is refused, and that content names itself."""

import io
import json
import os
import stat
import zipfile
from pathlib import Path

import numpy as np
import pytest

from circinus.pipelines.dataset_files import dataset_id, opened, packed, unpacked
from circinus.pipelines.errors import InvalidInput

LINES = b'{"input": 1, "expected": 2}\n{"input": 3, "expected": 4}\n'


def _archive(**files: bytes) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name.replace("__", "/").replace("_dot_", "."), content)
    return made.getvalue()


def _folder(where: Path) -> Path:
    where.mkdir()
    np.save(where / "clip.npy", np.arange(3))
    line = {"file": "clip.npy", "expected": 1}
    (where / "expected.jsonl").write_text(json.dumps(line), encoding="utf-8")
    return where


def test_what_is_neither_file_nor_folder_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "absent", tmp_path):
        with pytest.raises(InvalidInput, match="data must be a file, or a folder with expected"):
            packed(path)


def test_an_unknown_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="kind must be among jsonl, zip, got 'tar'"):
        unpacked("tar", b"", tmp_path)


def test_every_line_at_fault_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput) as refused:
        unpacked("jsonl", LINES + b'{"input": 5}\nnothing\n', tmp_path)

    assert [fault.field.split(":")[0] for fault in refused.value.faults] == [
        "data.jsonl, line 3",
        "data.jsonl, line 4",
    ]


def test_what_is_no_archive_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="archive must be a zip archive"):
        unpacked("zip", LINES, tmp_path)


@pytest.mark.parametrize("name", ["../out.jsonl", "/etc/out", "in/../../out", "a\\b"])
def test_names_that_lead_out_of_the_folder_are_refused(name: str, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    with pytest.raises(InvalidInput, match="archive must have names inside its folder"):
        unpacked("zip", _archive(**{name: b"x"}), home)
    assert [path.name for path in tmp_path.rglob("*")] == ["home"]


def test_links_in_an_archive_are_refused(tmp_path: Path) -> None:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        link = zipfile.ZipInfo("expected.jsonl")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc/passwd")
    with pytest.raises(InvalidInput, match="archive must have plain files and folders"):
        unpacked("zip", made.getvalue(), tmp_path)


def test_an_archive_that_unpacks_to_much_more_is_refused(tmp_path: Path) -> None:
    bomb = _archive(expected_dot_jsonl=bytes(2**24))
    with pytest.raises(InvalidInput, match=r"archive must unpack to at most [0-9]+ bytes"):
        unpacked("zip", bomb, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_file_comes_back_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    file.write_bytes(LINES)
    kind, content = packed(file)
    home = tmp_path / "home"
    home.mkdir()

    dataset = unpacked(kind, content, home)

    assert [(e.input, e.expected) for e in dataset.examples] == [(1, 2), (3, 4)]
    assert opened(kind, home).examples == dataset.examples


def test_a_folder_comes_back_as_it_was_and_names_itself_by_its_content(tmp_path: Path) -> None:
    folder = _folder(tmp_path / "clips")
    kind, content = packed(folder)
    os.utime(folder / "clip.npy", (1e9, 1e9))
    home = tmp_path / "home"
    home.mkdir()

    (example,) = unpacked(kind, content, home).examples

    assert np.array_equal(np.asarray(example.input), np.arange(3))
    assert packed(_folder(tmp_path / "other")) == (kind, content)
    assert dataset_id(kind, content) != dataset_id("jsonl", content)


def test_a_folder_inside_an_archive_is_found(tmp_path: Path) -> None:
    line = b'{"file": "a.txt", "expected": "A"}'
    content = _archive(clips__expected_dot_jsonl=line, clips__a_dot_txt=b"a")

    assert [e.input for e in unpacked("zip", content, tmp_path).examples] == ["a"]
