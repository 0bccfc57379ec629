from pathlib import Path

import numpy as np
import pytest

from circinus.pipelines.dataset import load_folder, load_json_lines
from circinus.pipelines.errors import InvalidInput


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
    ],
)
def test_a_line_that_is_no_example_is_named(tmp_path: Path, line: str, message: str) -> None:
    path = _lines(tmp_path, f'{{"input": 1, "expected": 2}}\n{line}\n')
    with pytest.raises(InvalidInput, match=message):
        load_json_lines(path)


def test_every_bad_line_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput) as caught:
        load_json_lines(_lines(tmp_path, "bad\nbad\n"))

    assert [fault.field for fault in caught.value.faults] == [
        "data.jsonl, line 1: example",
        "data.jsonl, line 2: example",
    ]


def test_a_missing_or_empty_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="must be a readable text file"):
        load_json_lines(tmp_path / "nowhere.jsonl")
    with pytest.raises(InvalidInput, match="must have 1 to 100000 examples, got 0"):
        load_json_lines(_lines(tmp_path, "\n"))


def test_json_lines_become_examples(tmp_path: Path) -> None:
    dataset = load_json_lines(_lines(tmp_path, '{"input": "a", "expected": [1]}\n\n'))

    assert [(e.input, e.expected) for e in dataset.examples] == [("a", [1])]


@pytest.mark.parametrize("name", ['"../secret.txt"', '"nowhere.npy"', "3", '"sub"'])
def test_a_file_outside_the_folder_or_missing_is_refused(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "data"
    (folder / "sub").mkdir(parents=True)
    (tmp_path / "secret.txt").write_text("x")
    _lines(folder, f'{{"file": {name}, "expected": 1}}', "expected.jsonl")

    with pytest.raises(InvalidInput, match="line 1: file must be a file inside the folder"):
        load_folder(folder)


def test_a_torn_array_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.npy").write_bytes(b"\x93NUMPY torn")
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
