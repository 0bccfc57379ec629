"""Weights of neural models: files in a folder of the user's, each of which has a known hash.

    $CIRCINUS_MODELS/<name>/<file>

One rule: `prepare` gets and checks them, and nothing does while a request or a measurement runs. A
check is remembered with the size and the time of a file, so that gigabytes are read once.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import platformdirs

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.execution.needs import Need

FOLDER = "CIRCINUS_MODELS"
"""Environment variable: the folder of weights; without it they lie in the user's cache."""

_BLOCK = 1 << 20


def models_folder() -> Path:
    """Return the folder of all weights."""
    chosen = os.environ.get(FOLDER)  # noqa: TID251 - operators have no settings
    return Path(chosen) if chosen else platformdirs.user_cache_path("circinus") / "models"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelWeights:
    """Files of one model, or of one set of data."""

    name: str  # of their folder
    what: str  # in words
    licence: str
    size_bytes: int  # of all files
    files: Mapping[str, str]  # path within the folder -> SHA-256, in hexadecimal digits
    hub: str = ""  # repository of huggingface.co that has these files; empty: none is known

    @property
    def folder(self) -> Path:
        """Where the files lie, or belong."""
        return models_folder() / self.name

    def path(self, file: str) -> Path:
        """Return where a file lies; InvalidInput if it is not there."""
        path = self.folder / file
        if not path.exists():
            raise self._missing(str(path))
        return path

    @property
    def need(self) -> Need:
        """What `Pipeline.needs` says of them."""
        source = f", or from {self.hub}" if self.hub else ""
        install = f"circinus prepare, from the folder {FOLDER} that has {self.name}/{source}"
        return Need(name=self.described, install=install, is_there=self._are_there)

    @property
    def described(self) -> str:
        """Name, size and licence, for people."""
        return f"weights {self.name} ({self.what}, {self.size_bytes / 1e6:.3g} MB, {self.licence})"

    def prepare(self) -> None:
        """Get the files that are missing, and check all; InvalidInput names one that is wrong.

        A download that was cut off goes on. InvalidInput, too, where the files cannot be had.
        """
        if not self._are_there():
            self._download()
        stamps = {file: _stamp(self.folder / file) for file in self.files}
        if self._checked() == stamps:
            return
        for file, expected in self.files.items():
            actual = _digest(self.folder / file)
            if actual != expected:
                rule = f"must have the SHA-256 {expected}"
                raise InvalidInput.of(str(self.folder / file), rule, actual)
        self._mark.parent.mkdir(parents=True, exist_ok=True)
        self._mark.write_text(json.dumps(stamps), encoding="utf-8")

    def _are_there(self) -> bool:
        return all((self.folder / file).exists() for file in self.files)

    def _download(self) -> None:
        if not self.hub:
            raise self._missing(str(self.folder))
        try:
            from huggingface_hub import snapshot_download
        except ImportError as error:
            raise self._missing("no package huggingface_hub") from error
        try:
            snapshot_download(self.hub, local_dir=self.folder, allow_patterns=list(self.files))
        except (OSError, ValueError) as error:  # of requests, and of names that there are not
            raise self._missing(f"{self.hub}: {error}") from error

    def _missing(self, what: str) -> InvalidInput:
        return InvalidInput.of("weights", f"must be there: {self.need}", what)

    @property
    def _mark(self) -> Path:
        where = sha256(str(self.folder.absolute()).encode()).hexdigest()[:12]
        return platformdirs.user_cache_path("circinus") / "weights" / f"{self.name}-{where}.json"

    def _checked(self) -> object:
        try:
            return json.loads(self._mark.read_bytes())
        except (OSError, ValueError):
            return None


def _stamp(path: Path) -> list[int]:
    status = path.stat()
    return [status.st_size, status.st_mtime_ns]


def _digest(path: Path) -> str:
    made = sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            made.update(block)
    return made.hexdigest()
