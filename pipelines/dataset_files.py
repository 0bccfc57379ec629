"""Data sets as one file: JSON lines, or a folder in a zip archive.

The archive of a folder is the same whenever and wherever it is made, so that its hash names the
content. Only the index and what it names inside the folder is packed and unpacked. Nothing is
unpacked that leads out of the folder, is no plain file, or unpacks to much more than is allowed.
"""

from __future__ import annotations

import hashlib
import io
import lzma
import stat
import zipfile
import zlib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path, PurePosixPath
from posixpath import dirname, normpath
from typing import BinaryIO, cast

from circinus.pipelines import checks
from circinus.pipelines.dataset import (
    INDEX_FILE,
    LARGEST_DATASET,
    Dataset,
    is_inside,
    load_folder,
    load_json_lines,
    named_files,
    read_json_lines,
)
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.files import opened as opened_file
from circinus.pipelines.files import read_file

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
    """Return the examples of a content, kept as files in an empty folder.

    An archive may unpack to `most_bytes`, or to 100 times what it has, but never to more than
    `LARGEST_UNPACKED`. InvalidInput if the kind is unknown, the archive is none, unsafe or too
    large, or an example is faulty.
    """
    checks.among("kind", kind, KINDS)
    if kind == "jsonl":
        found = read_json_lines(io.BytesIO(content), _LINES, most_inputs)
        (folder / _LINES).write_bytes(content)
        return found
    largest = min(max(_MOST_GROWTH * len(content), most_bytes), LARGEST_UNPACKED)
    _unzip(content, folder, 2 * most_inputs, largest)
    return load_folder(_home(folder), most_inputs)


def opened(kind: str, folder: Path) -> Dataset:
    """Return the examples of what `unpacked` kept."""
    if kind == "jsonl":
        return load_json_lines(folder / _LINES)
    return load_folder(_home(folder))


def _home(folder: Path) -> Path:
    """Return where the index lies: in the folder, or in a folder in it."""
    inner = folder.glob(f"*/{INDEX_FILE}")
    return folder if (folder / INDEX_FILE).is_file() else next(inner).parent


def _zipped(folder: Path) -> bytes:
    made = io.BytesIO()
    with opened_file(folder / INDEX_FILE, "data") as index:
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
        _require_few(content, most_files)
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            entries = _checked(archive.infolist(), most_files, most_bytes)
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


def _require_few(content: bytes, most_files: int) -> None:
    """Refuse an archive of too many files before its list of them is read."""
    # A piece at a time: whoever counts gives nobody way.
    pieces = range(0, len(content), _PIECE)
    count = sum(content.count(_ENTRY, start, start + _PIECE) for start in pieces)
    checks.require(count <= most_files, "archive", f"must have at most {most_files} files", count)


def _checked(
    found: Sequence[zipfile.ZipInfo], most_files: int, most_bytes: int
) -> Mapping[str, zipfile.ZipInfo]:
    """Return the entries by name, if none of them is what must not be in an archive."""
    size = sum(entry.file_size for entry in found)
    rule = f"must unpack to at most {most_bytes} bytes"
    checks.require(size <= most_bytes, "archive", rule, size)
    for entry in found:
        _check(entry)
    names = [normpath(entry.filename) for entry in found]
    checks.unique("archive", names)
    return dict(zip(names, found, strict=True))


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
