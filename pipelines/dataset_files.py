"""Data sets as one file: JSON lines, or a folder in a zip archive.

The archive of a folder is the same whenever and wherever it is made, so that its hash names the
content. Nothing is unpacked that leads out of the folder, is no plain file, or unpacks to much
more than it was sent as.
"""

from __future__ import annotations

import hashlib
import io
import stat
import zipfile
from pathlib import Path, PurePosixPath

from circinus.pipelines import checks
from circinus.pipelines.dataset import (
    INDEX_FILE,
    LARGEST_DATASET,
    Dataset,
    load_folder,
    load_json_lines,
)
from circinus.pipelines.errors import InvalidInput

KINDS = ("jsonl", "zip")
_EPOCH = (1980, 1, 1, 0, 0, 0)
_MOST_GROWTH = 100  # times its size that an archive may unpack to: text does, bombs do more
_LARGEST_UNPACKED = 2**31


def packed(path: Path) -> tuple[str, bytes]:
    """Give kind and content of a file of JSON lines, or of a folder; InvalidInput if neither."""
    try:
        if path.is_file():
            return "jsonl", path.read_bytes()
        if (path / INDEX_FILE).is_file():
            return "zip", _zipped(path)
    except OSError as error:
        raise InvalidInput.of("data", f"must be readable ({error})", str(path)) from error
    raise InvalidInput.of("data", f"must be a file, or a folder with {INDEX_FILE}", str(path))


def dataset_id(kind: str, content: bytes) -> str:
    """Give the name of a content: the same for the same one."""
    return f"d-{hashlib.sha256(kind.encode() + content).hexdigest()[:32]}"


def unpacked(kind: str, content: bytes, folder: Path) -> Dataset:
    """Give the examples of a content, kept as files in an empty folder.

    InvalidInput if the kind is unknown, the archive is none or unsafe, or an example is faulty.
    """
    checks.among("kind", kind, KINDS)
    if kind == "jsonl":
        file = folder / "data.jsonl"
        file.write_bytes(content)
        return load_json_lines(file)
    _unzip(content, folder)
    return _loaded(folder)


def opened(kind: str, folder: Path) -> Dataset:
    """Give the examples of what `unpacked` kept."""
    return load_json_lines(folder / "data.jsonl") if kind == "jsonl" else _loaded(folder)


def _loaded(folder: Path) -> Dataset:
    """Give the examples of a folder, or of the only folder in it."""
    inner = [path for path in folder.iterdir() if path.is_dir()]
    if not (folder / INDEX_FILE).is_file() and len(inner) == 1:
        folder = inner[0]
    return load_folder(folder)


def _zipped(folder: Path) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            name = path.relative_to(folder).as_posix()
            entry = zipfile.ZipInfo(name, _EPOCH)
            archive.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED)
    return made.getvalue()


def _unzip(content: bytes, folder: Path) -> None:
    most = min(max(_MOST_GROWTH * len(content), 2**20), _LARGEST_UNPACKED)
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            entries = archive.infolist()
            rule = f"must have at most {2 * LARGEST_DATASET} files"
            checks.require(len(entries) <= 2 * LARGEST_DATASET, "archive", rule, len(entries))
            size = sum(entry.file_size for entry in entries)
            checks.require(size <= most, "archive", f"must unpack to at most {most} bytes", size)
            for entry in entries:
                _check(entry)
                archive.extract(entry, folder)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, OSError) as error:
        rule = f"must be a zip archive ({error})"
        raise InvalidInput.of("archive", rule, content[:8]) from error


def _check(entry: zipfile.ZipInfo) -> None:
    path, mode = PurePosixPath(entry.filename), entry.external_attr >> 16
    inside = not path.is_absolute() and ".." not in path.parts and "\\" not in entry.filename
    checks.require(inside, "archive", "must have names inside its folder", entry.filename)
    plain = stat.S_IFMT(mode) in (0, stat.S_IFREG, stat.S_IFDIR)
    checks.require(plain, "archive", "must have plain files and folders", entry.filename)
