import io
import json
import os
import stat
import zipfile
from pathlib import Path

import numpy as np
import pytest

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.io.datasets import (
    dataset_id,
    load_folder,
    load_json_lines,
    open_dataset,
    packed,
    unpacked,
)


def _lines(tmp_path: Path, text: str, name: str = "data.jsonl") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("not json", r"data.jsonl, line 2: example must be a JSON object with exactly input and"),
        ('{"input": 1}', "line 2: example must be a JSON object"),
        ('{"input": 1, "expected": 2, "more": 3}', "line 2"),
        ('{"input": NaN, "expected": 2}', "NaN is no JSON number"),
        ("[1, 2]", "line 2"),
        ('{"input": 1, "input": 3, "expected": 2}', "must name every field once, got 'input'"),
        ('{"input": 1e999, "expected": 2}', "must have finite numbers, got '1e999'"),
        (
            '{"input": "\\ud800", "expected": 2}',
            "line 2: example must be .* must have text that UTF-8 can hold",
        ),
        ('{"input": 1, "expected": ["\\udfff"]}', "line 2: example .* text that UTF-8"),
        (
            '{"input": %s, "expected": 2}' % ("[" * 10**4 + "]" * 10**4),
            "line 2.*must nest at most",
        ),
        (
            '{"input": %s, "expected": 2}' % ("[" * 10**5 + "]" * 10**5),
            "line 2.*must have at most 30000 values",
        ),
        (
            '{"input": %s, "expected": 2}' % ("[" * 80 + "]" * 80),
            "line 2: input must nest at most",
        ),
    ],
)
def test_a_line_that_is_no_example_is_named(tmp_path: Path, line: str, message: str) -> None:
    path = _lines(tmp_path, f'{{"input": 1, "expected": 2}}\n{line}\n')
    with pytest.raises(InvalidInput, match=message):
        load_json_lines(path)


def test_a_line_that_is_no_text_is_named(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_bytes(b'{"input": 1, "expected": 2}\n{"input": "\xff", "expected": 2}\n')
    with pytest.raises(InvalidInput, match=r"line 2: example must be .*: must be UTF-8"):
        load_json_lines(path)


def test_every_bad_line_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput) as caught:
        load_json_lines(_lines(tmp_path, "bad\nbad\n"))

    assert [violation.field for violation in caught.value.violations] == [
        "data.jsonl, line 1: example",
        "data.jsonl, line 2: example",
    ]


def test_a_missing_or_empty_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="data must be a readable file"):
        load_json_lines(tmp_path / "nowhere.jsonl")
    with pytest.raises(InvalidInput, match="must have 1 to 100000 examples, got 0"):
        load_json_lines(_lines(tmp_path, "\n"))


def test_json_lines_become_examples(tmp_path: Path) -> None:
    dataset = load_json_lines(_lines(tmp_path, '{"input": "a", "expected": [1]}\n\n'))

    assert [(e.input, e.expected) for e in dataset.examples] == [("a", [1])]


def test_only_a_line_feed_ends_a_line(tmp_path: Path) -> None:
    text = '{"input": "a\u2028b\x85c", "expected": 1}\r\n{"input": "d",\r"expected": 2}'

    dataset = load_json_lines(_lines(tmp_path, text))

    assert [(e.input, e.expected) for e in dataset.examples] == [("a\u2028b\x85c", 1), ("d", 2)]


def test_more_lines_than_are_allowed_are_refused(tmp_path: Path) -> None:
    path = _lines(tmp_path, '{"input": 1, "expected": 2}\n' * 3)
    with pytest.raises(InvalidInput, match="dataset must have at most 2 inputs, got 3"):
        load_json_lines(path, 2)
    assert len(load_json_lines(path, 3)) == 3


@pytest.mark.parametrize(
    "name", ['"../secret.txt"', '"nowhere.npy"', "3", '"sub"', '"a\\u0000b"', f'"{"n" * 500}"']
)
def test_a_file_outside_the_folder_or_missing_is_refused(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "data"
    (folder / "sub").mkdir(parents=True)
    (tmp_path / "secret.txt").write_text("x")
    _lines(folder, f'{{"file": {name}, "expected": 1}}', "expected.jsonl")

    with pytest.raises(InvalidInput, match="line 1: file must be a file inside the folder"):
        load_folder(folder)


@pytest.mark.parametrize("text", ["[" * 10**5, "NaN", "1e999", '{"x": 1, "x": 2}', "torn"])
def test_a_json_file_is_read_as_strictly_as_a_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.json").write_text(text)
    _lines(tmp_path, '{"file": "a.json", "expected": 1}', "expected.jsonl")

    with pytest.raises(InvalidInput, match=r"line 1: file must be a readable .json file"):
        load_folder(tmp_path)


def test_a_file_that_cannot_be_read_is_told_without_its_place(tmp_path: Path) -> None:
    _lines(tmp_path, '{"file": "a.npy", "expected": 1}', "expected.jsonl")
    np.save(tmp_path / "a.npy", np.zeros(2, dtype=[("x", "i4")]))
    with pytest.raises(InvalidInput, match="line 1: input must have arrays of numbers"):
        load_folder(tmp_path)
    with pytest.raises(InvalidInput, match=r"file \(No such file or directory\), got") as refused:
        load_json_lines(tmp_path / "absent.jsonl")
    assert str(refused.value).count(str(tmp_path)) == 1


@pytest.mark.parametrize("content", [b"\x93NUMPY torn", b"", b"PK\x05\x06" + bytes(18)])
def test_a_torn_array_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.npy").write_bytes(content)
    _lines(tmp_path, '{"file": "a.npy", "expected": 1}', "expected.jsonl")

    with pytest.raises(InvalidInput, match=r"must be a readable .npy file"):
        load_folder(tmp_path)


def test_a_folder_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"data.folder must be a folder"):
        load_folder(tmp_path / "nowhere")


def test_files_of_a_folder_are_read_by_their_kind(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(3))
    (tmp_path / "b.json").write_text('{"x": 1}')
    (tmp_path / "c.txt").write_text("words")
    (tmp_path / "d.bin").write_bytes(b"\x00\x01")
    index = "".join(
        f'{{"file": "{n}", "expected": 0}}\n' for n in ("a.npy", "b.json", "c.txt", "d.bin")
    )
    _lines(tmp_path, index, "expected.jsonl")

    array, *rest = [example.input for example in load_folder(tmp_path).examples]

    assert isinstance(array, np.ndarray)
    assert array.tolist() == [0, 1, 2]
    assert rest == [{"x": 1}, "words", b"\x00\x01"]


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

    assert [violation.field.split(":")[0] for violation in refused.value.violations] == [
        "data.jsonl, line 3",
        "data.jsonl, line 4",
    ]


def test_what_is_no_archive_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="archive must be a zip archive"):
        unpacked("zip", LINES, tmp_path)


def test_a_flipped_bit_anywhere_gives_examples_or_a_reason(tmp_path: Path) -> None:
    content = _archive(expected_dot_jsonl=b'{"file": "a.txt", "expected": 1}', a_dot_txt=b"a" * 99)
    refused = []
    for at in range(len(content)):
        home = tmp_path / str(at)
        home.mkdir()
        try:
            unpacked("zip", content[:at] + bytes([content[at] ^ 0x55]) + content[at + 1 :], home)
        except InvalidInput as error:
            refused.append(str(error))
    assert len(refused) > len(content) / 3
    assert [text for text in refused if str(tmp_path) in text] == []


def test_a_name_twice_in_an_archive_is_refused(tmp_path: Path) -> None:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name in ("a.txt", "./a.txt"):
            archive.writestr(name, b"a")
    with pytest.raises(InvalidInput, match=r"archive must not repeat, got 'a.txt'"):
        unpacked("zip", made.getvalue(), tmp_path)


def test_an_archive_without_an_index_is_refused(tmp_path: Path) -> None:
    for content in (_archive(), _archive(a_dot_txt=b"a"), _archive(a__b__expected_dot_jsonl=b"")):
        with pytest.raises(InvalidInput, match=r"archive must have expected.jsonl, got \["):
            unpacked("zip", content, tmp_path)


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


def test_an_archive_may_unpack_to_as_much_as_is_allowed(tmp_path: Path) -> None:
    line = b'{"file": "zeros", "expected": 1}'
    content = _archive(expected_dot_jsonl=line, zeros=bytes(2**24))  # 1000 times as much as packed

    with pytest.raises(InvalidInput, match=f"unpack to at most {2**24 + len(line) - 1} bytes"):
        unpacked("zip", content, tmp_path, most_bytes=2**24 + len(line) - 1)
    (example,) = unpacked("zip", content, tmp_path, most_bytes=2**24 + len(line)).examples
    assert example.input == bytes(2**24)


def test_only_what_the_index_names_is_unpacked(tmp_path: Path) -> None:
    line = b'{"file": "a.txt", "expected": "A"}'
    content = _archive(expected_dot_jsonl=line, a_dot_txt=b"a", b_dot_txt=b"b", c__d_dot_txt=b"d")

    unpacked("zip", content, tmp_path)

    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a.txt", "expected.jsonl"]


def test_what_a_link_leads_to_outside_is_not_packed(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("secret")
    folder, home = _folder(tmp_path / "clips"), tmp_path / "home"
    (folder / "link.txt").symlink_to(tmp_path / "secret.txt")
    with (folder / "expected.jsonl").open("a", encoding="utf-8") as index:
        index.write('\n{"file": "link.txt", "expected": 1}')
    home.mkdir()

    kind, content = packed(folder)

    assert zipfile.ZipFile(io.BytesIO(content)).namelist() == ["clip.npy", "expected.jsonl"]
    with pytest.raises(InvalidInput, match=r"line 2: file must be a file inside the folder"):
        unpacked(kind, content, home)


def test_a_file_comes_back_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    file.write_bytes(LINES)
    kind, content = packed(file)
    home = tmp_path / "home"
    home.mkdir()

    dataset = unpacked(kind, content, home)

    assert [(e.input, e.expected) for e in dataset.examples] == [(1, 2), (3, 4)]
    assert open_dataset(kind, home).examples == dataset.examples


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
