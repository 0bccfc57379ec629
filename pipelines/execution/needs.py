"""What a pipeline needs beyond the base install, and whether this machine has it.

The one rule: looking imports nothing and starts nothing, so that a catalogue can be listed
where half of it cannot run.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from circinus.pipelines.errors import InvalidInput


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """Something that operators use and the base install does not bring."""

    name: str  # what it is called, such as `tesserocr` or `gocr`
    install: str  # how to get it, a command or a sentence; empty when there is no way to
    is_there: Callable[[], bool]  # returns whether this machine has it; imports and starts nothing

    def __str__(self) -> str:
        """Return name and remedy, for people."""
        return f"{self.name} ({self.install})" if self.install else self.name


def package(module: str, *, extra: str) -> Need:
    """Return the need of a Python module that an extra of this project brings."""
    return Need(
        name=module,
        install=f"pip install 'circinus[{extra}]'",
        is_there=lambda: find_spec(module) is not None,
    )


def program(name: str, *, debian: str) -> Need:
    """Return the need of a program on the search path, with the Debian package that has it."""
    install = f"apt-get install {debian}"
    return Need(name=name, install=install, is_there=lambda: shutil.which(name) is not None)


def file(name: str, places: Sequence[Path], *, debian: str) -> Need:
    """Return the need of a file in one of some places, with the Debian package that has it."""
    install = f"apt-get install {debian}"
    return Need(name=name, install=install, is_there=lambda: any(p.exists() for p in places))


def missing(needs: Sequence[Need]) -> tuple[Need, ...]:
    """Return the needs that this machine does not meet."""
    return tuple(need for need in needs if not need.is_there())


def require(field: str, value: object, needs: Sequence[Need]) -> None:
    """Raise InvalidInput unless needs are met: with what is missing, and how to install it."""
    if lacking := missing(needs):
        rule = f"must be available here (missing: {', '.join(map(str, lacking))})"
        raise InvalidInput.of(field, rule, value)
