"""Tells that something long goes on, so that nobody takes it for dead."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread

Tell = Callable[[str], object]
"""Is given a line for people."""
EVERY_S = 10.0


def to_stderr(line: str) -> None:
    """Print a line beside the result."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


@contextmanager
def told(what: Callable[[], str], tell: Tell, *, every_s: float | None = None) -> Iterator[None]:
    """Tell what goes on, and for how long, every so many seconds until the block ends.

    Args:
        what: Gives what goes on now; asked in another thread.
        tell: Is told in that thread.
        every_s: At most so long is nothing told; None: `EVERY_S`.
    """
    start, over, pause_s = time.monotonic(), Event(), EVERY_S if every_s is None else every_s

    def beat() -> None:
        while not over.wait(pause_s):
            tell(f"{what()}, {time.monotonic() - start:.0f} s")

    thread = Thread(target=beat, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
