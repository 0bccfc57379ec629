"""What processes get from the environment of the process that starts them."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

# A machine of a local tier is one core: numeric libraries may not take more.
_THREADS = ("OMP_NUM", "OPENBLAS_NUM", "MKL_NUM", "NUMEXPR_NUM", "VECLIB_MAXIMUM")
_ONE_THREAD = {f"{threads}_THREADS": "1" for threads in _THREADS}
# In any letters: settings are read so. Of PostgreSQL its own words, and files of them.
_OURS = re.compile(r"CIRCINUS_.*(TOKEN|SECRET|DATABASE_URL)", re.IGNORECASE)
_ANY_SECRET = re.compile(rf"{_OURS.pattern}|PG.*PASS", re.IGNORECASE)
PRIVATE = 0o077
"""The umask of our processes: what they write is for their user alone."""


def own_environment() -> dict[str, str]:
    """Return the environment of a process of the service that is handed its settings.

    It is this one's without token and database URL; the database may need what else there is.
    """
    return _without(_OURS)


def operator_environment() -> dict[str, str]:
    """Return the environment of a process that runs operators: this one's without secrets of ours.

    The module search path is the same, so that a reference means the same there.
    """
    search = [str(Path(entry).absolute()) for entry in sys.path]  # "" is the current folder
    return {**_without(_ANY_SECRET), "PYTHONPATH": os.pathsep.join(search)}


def worker_environment() -> dict[str, str]:
    """Return the same with one numeric thread."""
    return {**operator_environment(), **_ONE_THREAD}


def adopt_environment(environment: Mapping[str, str]) -> None:
    """Replace this process' environment by another."""
    os.environ.clear()
    os.environ.update(environment)


@contextlib.contextmanager
def without_secrets() -> Iterator[None]:
    """Let what is started meanwhile inherit no secret, where its environment cannot be given."""
    kept = {name: value for name, value in os.environ.items() if _ANY_SECRET.match(name)}
    for name in kept:
        del os.environ[name]
    try:
        yield
    finally:
        os.environ.update(kept)


def _without(secrets: re.Pattern[str]) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not secrets.match(name)}
