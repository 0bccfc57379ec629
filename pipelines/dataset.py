"""The inputs to profile a pipeline on, with what it should answer: made by it, or a user's own.

JSON lines: one example a line, `{"input": ..., "expected": ...}`.

Folder: `expected.jsonl` with `{"file": "clip-1.npy", "expected": ...}` a line, beside the
files it names. A `.npy` file is an array, `.json` is JSON, `.txt` is text, anything
else is bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from io import StringIO
from pathlib import Path
from posixpath import normpath
from typing import BinaryIO, cast

from circinus.pipelines import checks
from circinus.pipelines.errors import MOST_FAULTS, Fault, InvalidInput
from circinus.pipelines.files import opened, read_array, read_file
from circinus.pipelines.payload import Payload, payload_bytes
from circinus.pipelines.strict_json import read_json

LARGEST_DATASET = 100_000  # more inputs than this are refused: profiling draws a few hundred

INDEX_FILE = "expected.jsonl"
_LONGEST_TOLD = 1000  # bytes of a line
_BLANK = 1000  # lines that may be, besides as many as others
_LONGEST_TEXT = 2**24  # bytes of a line, or of a file of JSON


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
        """Return the number of examples."""
        return len(self.examples)


def load_json_lines(path: Path, most: int = LARGEST_DATASET) -> Dataset:
    """Return the examples of a file; InvalidInput numbers the lines that are none."""
    with opened(path, "data") as file:
        return read_json_lines(file, path.name, most)


def read_json_lines(file: BinaryIO, name: str, most: int = LARGEST_DATASET) -> Dataset:
    """Return the examples of an open file."""
    examples = _examples(_lines(file, most), name, "input", lambda given: given)
    return Dataset(name=name, examples=examples)


def load_folder(folder: Path, most: int = LARGEST_DATASET) -> Dataset:
    """Return a folder's examples; InvalidInput if it has no index, or numbers each faulty line."""
    if not folder.is_dir():
        raise InvalidInput.of("data.folder", "must be a folder", str(folder))
    with opened(folder / INDEX_FILE, "data") as file:
        examples = _examples(_lines(file, most), INDEX_FILE, "file", partial(_read, folder))
    return Dataset(name=folder.name, examples=examples)


def named_files(index: BinaryIO, most: int = LARGEST_DATASET) -> frozenset[str]:
    """Return the files that the lines of an index name; a faulty line names none."""
    found = set()
    for _, line in _lines(index, most):
        with suppress(InvalidInput):
            name = _fields(line, "file")["file"]
            found |= {normpath(name)} if isinstance(name, str) else set()
    return frozenset(found)


def is_inside(folder: Path, path: Path) -> bool:
    """Say whether a path, wherever links in it lead, is a file in the folder."""
    try:
        return path.resolve().is_relative_to(folder.resolve()) and path.is_file()
    except (OSError, ValueError, RuntimeError):  # too long, no name, links in a circle
        return False


def _examples(
    lines: Iterable[tuple[int, bytes]], name: str, source: str, read: Callable[[Payload], Payload]
) -> Sequence[Example]:
    """Return an example for each line, its input read from what the line has under `source`."""
    examples = []
    faults: list[Fault] = []
    for number, line in lines:
        try:
            fields = _fields(line, source)
            examples.append(
                Example(
                    input=_checked("input", read(fields[source])),
                    expected=_checked("expected", fields["expected"]),
                )
            )
        except InvalidInput as error:
            at = f"{name}, line {number}"
            faults += [Fault(f"{at}: {f.field}", f.rule, f.value) for f in error.faults]
        if len(faults) >= MOST_FAULTS:
            break
    if faults:
        raise InvalidInput(faults)
    return examples


def _lines(file: BinaryIO, most: int) -> Iterator[tuple[int, bytes]]:
    """Yield each line with text, with its number; InvalidInput where there are too many."""
    count = 0
    # Not as text: inside JSON other ends of lines are white or text.
    for number, line in enumerate(iter(lambda: file.readline(_LONGEST_TEXT + 1), b""), 1):
        count += not line.isspace()
        if count > most or number > 2 * most + _BLANK:
            raise InvalidInput.of("dataset", f"must have at most {most} inputs", number)
        if len(line) > _LONGEST_TEXT:
            rule = f"must have at most {_LONGEST_TEXT} bytes"
            raise InvalidInput.of(f"data, line {number}", rule, line)
        if not line.isspace():
            yield number, line.rstrip(b"\n")


def _fields(line: bytes, source: str) -> dict[str, Payload]:
    rule = f"must be a JSON object with exactly {source} and expected"
    try:
        fields = read_json(line, "example")
    except InvalidInput as error:
        raise InvalidInput(
            [Fault(f.field, f"{rule}: {f.rule}", f.value) for f in error.faults]
        ) from error
    if not isinstance(fields, dict) or set(fields) != {source, "expected"}:
        raise InvalidInput.of("example", rule, line[:_LONGEST_TOLD].decode(errors="replace"))
    return fields


def _checked(field: str, payload: Payload) -> Payload:
    """Return the payload if it is one: JSON can hold text that is none."""
    try:
        payload_bytes(payload)
    except InvalidInput as error:
        raise InvalidInput([Fault(field, f.rule, f.value) for f in error.faults]) from error
    return payload


def _read(folder: Path, name: Payload) -> Payload:
    inside = isinstance(name, str) and is_inside(folder, folder / name)
    checks.require(inside, "file", "must be a file inside the folder", name)
    path = folder / str(name)
    try:
        return _READERS.get(path.suffix.lower(), _bytes)(path)
    except (OSError, ValueError, MemoryError) as error:
        # Of the system's own words only those without the path: it is the server's.
        rule = (
            f"must be a readable {path.suffix} file ({getattr(error, 'strerror', None) or error})"
        )
        raise InvalidInput.of("file", rule, name) from error


def _array(path: Path) -> Payload:
    with path.open("rb") as file:  # not `load`, which takes archives as well
        array: Payload = read_array(file, path.stat().st_size)
    return array


def _json(path: Path) -> Payload:
    return cast("Payload", read_json(read_file(path, path.name, _LONGEST_TEXT), path.name))


def _text(path: Path) -> Payload:
    return StringIO(_bytes(path).decode("utf-8"), newline=None).read()  # ends of lines as one


def _bytes(path: Path) -> bytes:
    return read_file(path, path.name)


_READERS: Mapping[str, Callable[[Path], Payload]] = {
    ".npy": _array,
    ".json": _json,
    ".txt": _text,
}
