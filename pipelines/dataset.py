"""The inputs to profile a pipeline on, with what it should answer: made by it, or a user's own.

JSON lines: one example a line, `{"input": ..., "expected": ...}`.

Folder: `expected.jsonl` with `{"file": "clip-1.npy", "expected": ...}` a line, beside the
files it names. A `.npy` file is an array, `.json` is JSON, `.txt` is text, anything
else is bytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from circinus.pipelines import checks
from circinus.pipelines.errors import Fault, InvalidInput
from circinus.pipelines.payload import Payload, content_hash

LARGEST_DATASET = 100_000  # more inputs than this are refused: profiling draws a few hundred

INDEX_FILE = "expected.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One input and the output expected for it."""

    input: Payload  # what the source operators get
    expected: Payload  # what the metric compares the output with


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """Inputs with expected outputs, in a fixed order."""

    name: str  # for people
    examples: Sequence[Example]  # at least one, at most `LARGEST_DATASET`

    def __post_init__(self) -> None:
        count = len(self.examples)
        rule = f"must have 1 to {LARGEST_DATASET} examples"
        checks.require(1 <= count <= LARGEST_DATASET, f"data {self.name}", rule, count)

    def __len__(self) -> int:
        """Give the number of examples."""
        return len(self.examples)


def load_json_lines(path: Path) -> Dataset:
    """Give the examples of a file; InvalidInput numbers every line that is no example."""
    return Dataset(name=path.name, examples=_examples(path, "input", lambda given: given))


def load_folder(folder: Path) -> Dataset:
    """Give a folder's examples; InvalidInput if it has no index, or numbers each faulty line."""
    if not folder.is_dir():
        raise InvalidInput.of("data.folder", "must be a folder", str(folder))
    examples = _examples(folder / INDEX_FILE, "file", partial(_read, folder))
    return Dataset(name=folder.name, examples=examples)


def _examples(path: Path, source: str, read: Callable[[Payload], Payload]) -> Sequence[Example]:
    """Give an example for each line, its input read from what the line has under `source`."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        rule = f"must be a readable text file ({error})"
        raise InvalidInput.of("data", rule, str(path)) from error
    lines = [(i, line) for i, line in enumerate(text.splitlines(), 1) if line.strip()]
    if len(lines) > LARGEST_DATASET:
        rule = f"must have at most {LARGEST_DATASET} examples"
        raise InvalidInput.of(f"data {path.name}", rule, len(lines))
    examples = []
    faults: list[Fault] = []
    for number, line in lines:
        try:
            fields = _fields(line, source)
            examples.append(Example(input=read(fields[source]), expected=fields["expected"]))
        except InvalidInput as error:
            at = f"{path.name}, line {number}"
            faults += [Fault(f"{at}: {f.field}", f.rule, f.value) for f in error.faults]
    if faults:
        raise InvalidInput(faults)
    return examples


def _fields(line: str, source: str) -> dict[str, Payload]:
    rule = f"must be a JSON object with exactly {source} and expected"
    try:
        fields = json.loads(line, parse_constant=_refuse_constant)
    except ValueError as error:
        raise InvalidInput.of("example", f"{rule} ({error})", line) from error
    if not isinstance(fields, dict) or set(fields) != {source, "expected"}:
        raise InvalidInput.of("example", rule, line)
    content_hash(fields["expected"])  # raises unless it is a payload
    return fields


def _refuse_constant(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON number")


def _read(folder: Path, name: Payload) -> Payload:
    path = (folder / str(name)).resolve()
    inside = isinstance(name, str) and path.is_relative_to(folder.resolve()) and path.is_file()
    checks.require(inside, "file", "must be a file inside the folder", name)
    try:
        return _READERS.get(path.suffix.lower(), Path.read_bytes)(path)
    except ValueError as error:
        rule = f"must be a readable {path.suffix} file ({error})"
        raise InvalidInput.of("file", rule, name) from error


_READERS: dict[str, Callable[[Path], Payload]] = {
    ".npy": partial(np.load, allow_pickle=False),
    ".json": lambda path: json.loads(path.read_text("utf-8"), parse_constant=_refuse_constant),
    ".txt": partial(Path.read_text, encoding="utf-8"),
}
