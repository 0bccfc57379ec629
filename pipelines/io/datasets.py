"""The inputs to profile a pipeline on, with expected outputs, and their form as one file.

JSON lines: one example a line, `{"input": ..., "expected": ...}`. Folder: `expected.jsonl` with
`{"file": "clip-1.npy", "expected": ...}` a line, beside the files it names (`.npy` is an array,
`.json` JSON, `.txt` text, anything else bytes). The archive of a folder is the same whenever it is
made, so that its hash names the content. Nothing is unpacked that leads out of the folder, is no
plain file, or unpacks to much more than is allowed.
"""

from __future__ import annotations

import hashlib
import io
import lzma
import stat
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from io import StringIO
from pathlib import Path, PurePosixPath
from posixpath import dirname, normpath
from typing import BinaryIO, TypeVar, cast

from circinus.pipelines import checks
from circinus.pipelines.errors import MOST_VIOLATIONS, InvalidInput, Violation
from circinus.pipelines.io.files import opened, read_array, read_file
from circinus.pipelines.io.strict import read_json
from circinus.pipelines.model.payload import Payload, payload_bytes

Row = TypeVar("Row")

LARGEST_DATASET = 100_000  # more inputs than this are refused: profiling draws a few hundred

INDEX_FILE = "expected.jsonl"
_LONGEST_QUOTE = 1000  # bytes of a line
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
    examples = _examples(_lines(file, most), name, "input", lambda value: value)
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
    names = set()
    for _, line in _lines(index, most):
        with suppress(InvalidInput):
            name = _fields(line, "file")["file"]
            names |= {normpath(name)} if isinstance(name, str) else set()
    return frozenset(names)


def is_inside(folder: Path, path: Path) -> bool:
    """Return whether a path, wherever links in it lead, is a file in the folder."""
    try:
        return path.resolve().is_relative_to(folder.resolve()) and path.is_file()
    except (OSError, ValueError, RuntimeError):  # too long, no name, links in a circle
        return False


def _examples(
    lines: Iterable[tuple[int, bytes]], name: str, source: str, read: Callable[[Payload], Payload]
) -> Sequence[Example]:
    """Return an example for each line, its input read from what the line has under `source`."""

    def example(line: bytes) -> Example:
        fields = _fields(line, source)
        return Example(
            input=_checked("input", read(fields[source])),
            expected=_checked("expected", fields["expected"]),
        )

    return read_examples(((f"{name}, line {n}: ", line) for n, line in lines), example)


def read_examples(
    rows: Iterable[tuple[str, Row]], read: Callable[[Row], Example]
) -> list[Example]:
    """Return the example of each row; InvalidInput has the violations of all, or the first.

    The place of a row, such as `data[3]`, is put before the fields of its violations.
    """
    examples, violations = list[Example](), list[Violation]()
    for place, row in rows:
        try:
            examples.append(read(row))
        except InvalidInput as error:
            violations += [Violation(place + v.field, v.rule, v.value) for v in error.violations]
        if len(violations) >= MOST_VIOLATIONS:
            break
    if violations:
        raise InvalidInput(violations)
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
            [Violation(f.field, f"{rule}: {f.rule}", f.value) for f in error.violations]
        ) from error
    if not isinstance(fields, dict) or set(fields) != {source, "expected"}:
        raise InvalidInput.of("example", rule, line[:_LONGEST_QUOTE].decode(errors="replace"))
    return fields


def _checked(field: str, payload: Payload) -> Payload:
    """Return the payload if it is one: JSON can hold text that is none."""
    try:
        payload_bytes(payload)
    except InvalidInput as error:
        raise InvalidInput(
            [Violation(field, f.rule, f.value) for f in error.violations]
        ) from error
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


_LINES = "data.jsonl"
KINDS = ("jsonl", "zip")
_ENTRY, _PIECE = b"PK\1\2", 2**20  # before each file in the list of them; bytes
_EPOCH = (1980, 1, 1, 0, 0, 0)
_MOST_GROWTH = 100  # times its size that an archive may unpack to: text does, bombs do more
LARGEST_UNPACKED = 2**31  # bytes, whatever is allowed
_LEAST_UNPACKED = 2**20
_TORN = (
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError),
    *(NotImplementedError, RuntimeError, OSError, EOFError, ValueError),
)
"""What reading an archive with a flipped bit may raise."""


def packed(path: Path) -> tuple[str, bytes]:
    """Return kind and content of a file of JSON lines, or of a folder; InvalidInput if neither."""
    try:
        if path.is_file():
            return "jsonl", read_file(path, "data", LARGEST_UNPACKED)
        if (path / INDEX_FILE).is_file():
            return "zip", _zipped(path)
    except (OSError, ValueError) as error:
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput.of("data", f"must be readable ({error})", str(path)) from error
    raise InvalidInput.of("data", f"must be a file, or a folder with {INDEX_FILE}", str(path))


def dataset_id(kind: str, content: bytes) -> str:
    """Return the name of a content: the same for the same one."""
    digest = hashlib.sha256(kind.encode())
    digest.update(content)
    return f"d-{digest.hexdigest()[:32]}"


def unpacked(
    kind: str,
    content: bytes,
    folder: Path,
    *,
    most_inputs: int = LARGEST_DATASET,
    most_bytes: int = _LEAST_UNPACKED,
) -> Dataset:
    """Return the examples of a content, stored as files in an empty folder.

    An archive may unpack to `most_bytes`, or to 100 times what it has, but never to more than
    `LARGEST_UNPACKED`. InvalidInput if the kind is unknown, the archive is none, unsafe or too
    large, or an example is faulty.
    """
    checks.among("kind", kind, KINDS)
    if kind == "jsonl":
        dataset = read_json_lines(io.BytesIO(content), _LINES, most_inputs)
        (folder / _LINES).write_bytes(content)
        return dataset
    largest = min(max(_MOST_GROWTH * len(content), most_bytes), LARGEST_UNPACKED)
    _unzip(content, folder, 2 * most_inputs, largest)
    return load_folder(_home(folder), most_inputs)


def open_dataset(kind: str, folder: Path) -> Dataset:
    """Return the examples of what `unpacked` stored."""
    if kind == "jsonl":
        return load_json_lines(folder / _LINES)
    return load_folder(_home(folder))


def _home(folder: Path) -> Path:
    """Return where the index lies: in the folder, or in a folder in it."""
    inner = folder.glob(f"*/{INDEX_FILE}")
    return folder if (folder / INDEX_FILE).is_file() else next(inner).parent


def _zipped(folder: Path) -> bytes:
    made = io.BytesIO()
    with opened(folder / INDEX_FILE, "data") as index:
        named = {INDEX_FILE} | named_files(index)
    inside = [name for name in sorted(named) if is_inside(folder, folder / name)]
    size = sum((folder / name).stat().st_size for name in inside)
    rule = f"must have at most {LARGEST_UNPACKED} bytes"
    checks.require(size <= LARGEST_UNPACKED, "data", rule, size)
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in inside:
            entry = zipfile.ZipInfo(name, _EPOCH)
            content = read_file(folder / name, name, LARGEST_UNPACKED)
            archive.writestr(entry, content, zipfile.ZIP_DEFLATED)
    return made.getvalue()


def _unzip(content: bytes, folder: Path, most_files: int, most_bytes: int) -> None:
    try:
        _require_few_files(content, most_files)
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            entries = _safe_entries(archive.infolist(), most_files, most_bytes)
            index = _index(entries)
            with archive.open(entries[index]) as lines:
                files = named_files(cast("BinaryIO", lines), most_files)
            named = {normpath(f"{dirname(index)}/{name}".lstrip("/")) for name in files}
            for name in {index} | (named & entries.keys()):
                archive.extract(entries[name], folder)
    except InvalidInput:
        raise
    except _TORN as error:
        rule = f"must be a zip archive ({getattr(error, 'strerror', None) or error})"
        raise InvalidInput.of("archive", rule, content[:8]) from error


def _require_few_files(content: bytes, most_files: int) -> None:
    """Refuse an archive of too many files before its list of them is read."""
    # A piece at a time: counting blocks all other threads.
    pieces = range(0, len(content), _PIECE)
    count = sum(content.count(_ENTRY, start, start + _PIECE) for start in pieces)
    checks.require(count <= most_files, "archive", f"must have at most {most_files} files", count)


def _safe_entries(
    entries: Sequence[zipfile.ZipInfo], most_files: int, most_bytes: int
) -> Mapping[str, zipfile.ZipInfo]:
    """Return the entries by name, if none of them is what must not be in an archive."""
    size = sum(entry.file_size for entry in entries)
    rule = f"must unpack to at most {most_bytes} bytes"
    checks.require(size <= most_bytes, "archive", rule, size)
    for entry in entries:
        _check(entry)
    names = [normpath(entry.filename) for entry in entries]
    checks.unique("archive", names)
    return dict(zip(names, entries, strict=True))


def _check(entry: zipfile.ZipInfo) -> None:
    path, mode = PurePosixPath(entry.filename), entry.external_attr >> 16
    inside = not path.is_absolute() and ".." not in path.parts and "\\" not in entry.filename
    checks.require(inside, "archive", "must have names inside its folder", entry.filename)
    plain = stat.S_IFMT(mode) in (0, stat.S_IFREG, stat.S_IFDIR)
    checks.require(plain, "archive", "must have plain files and folders", entry.filename)


def _index(names: Collection[str]) -> str:
    """Return the name of the index: in the archive, or in one folder in it."""
    if INDEX_FILE in names:
        return INDEX_FILE
    inner = [name for name in names if name.partition("/")[2] == INDEX_FILE]
    checks.require(len(inner) == 1, "archive", f"must have {INDEX_FILE}", sorted(names)[:3])
    return inner[0]
