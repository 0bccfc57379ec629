"""A user's own data: a file of JSON lines, or a folder.

JSON lines: one example a line, `{"input": ..., "expected": ...}`.

Folder: `expected.jsonl` with `{"file": "clip-1.npy", "expected": ...}` a line, beside the
files it names. A `.npy` file is an array, `.json` is JSON, `.txt` is text, anything
else is bytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from pipelines.dataset import LARGEST_DATASET, Dataset, Example
from pipelines.errors import Fault, InvalidInput
from pipelines.payload import Payload, content_hash

_INDEX = "expected.jsonl"


def load_json_lines(path: Path) -> Dataset:
    """Give the examples of a file of JSON lines.

    Raises:
        InvalidInput: With the number of every line that is no example.
    """
    examples, faults = [], []
    for number, line in _lines(path):
        try:
            fields = _example_fields(line, ("input", "expected"))
            examples.append(Example(input=fields["input"], expected=fields["expected"]))
        except InvalidInput as error:
            faults += _at(path, number, error)
    if faults:
        raise InvalidInput(faults)
    return Dataset(name=path.name, examples=examples)


def load_folder(folder: Path) -> Dataset:
    """Give the examples of a folder.

    Raises:
        InvalidInput: If the folder has no index, with the number of every line of it that names
            no file inside the folder.
    """
    if not folder.is_dir():
        raise InvalidInput.of("data.folder", "must be a folder", str(folder))
    examples, faults = [], []
    for number, line in _lines(folder / _INDEX):
        try:
            fields = _example_fields(line, ("file", "expected"))
            item = _read(folder, fields["file"])
            examples.append(Example(input=item, expected=fields["expected"]))
        except InvalidInput as error:
            faults += _at(folder / _INDEX, number, error)
    if faults:
        raise InvalidInput(faults)
    return Dataset(name=folder.name, examples=examples)


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput.of(
            "data", f"must be a readable text file ({error})", str(path)
        ) from error
    lines = [(i, line) for i, line in enumerate(text.splitlines(), 1) if line.strip()]
    if len(lines) > LARGEST_DATASET:
        rule = f"must have at most {LARGEST_DATASET} examples"
        raise InvalidInput.of(f"data {path.name}", rule, len(lines))
    return iter(lines)


def _example_fields(line: str, names: tuple[str, str]) -> dict[str, Payload]:
    rule = f"must be a JSON object with exactly {names[0]} and {names[1]}"
    try:
        fields = json.loads(line, parse_constant=_refuse_constant)
    except ValueError as error:
        raise InvalidInput.of("example", f"{rule} ({error})", line) from error
    if not isinstance(fields, dict) or set(fields) != set(names):
        raise InvalidInput.of("example", rule, line)
    content_hash(fields["expected"])  # raises unless it is a payload
    return fields


def _refuse_constant(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON number")


def _at(path: Path, number: int, error: InvalidInput) -> list[Fault]:
    return [Fault(f"{path.name}, line {number}: {f.field}", f.rule, f.value) for f in error.faults]


def _read(folder: Path, name: Payload) -> Payload:
    path = (folder / str(name)).resolve()
    if (
        not isinstance(name, str)
        or not path.is_relative_to(folder.resolve())
        or not path.is_file()
    ):
        raise InvalidInput.of("file", "must be a file inside the folder", name)
    read = _READERS.get(path.suffix.lower(), Path.read_bytes)
    try:
        return read(path)
    except ValueError as error:
        raise InvalidInput.of(
            "file", f"must be a readable {path.suffix} file ({error})", name
        ) from error


def _read_array(path: Path) -> Payload:
    array: Payload = np.load(path, allow_pickle=False)
    return array


def _read_json(path: Path) -> Payload:
    tree: Payload = json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse_constant)
    return tree


_READERS: dict[str, Callable[[Path], Payload]] = {
    ".npy": _read_array,
    ".json": _read_json,
    ".txt": lambda path: path.read_text(encoding="utf-8"),
}
