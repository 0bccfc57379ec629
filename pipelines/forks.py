"""What a user's code leaves behind by forking: copies of this process that go on with our work.

A copy that returns from an operator would answer, score or plan once more, over the same
descriptors. The one rule: only the process that entered a user's code leaves it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def copies_ended() -> Iterator[None]:
    """End, in place of leaving the block, every copy of this process that was forked in it."""
    process = os.getpid()
    try:
        yield
    finally:
        if os.getpid() != process:
            told = f"fork_returned of={process}: the copy ends, and answers nothing\n"
            os.write(2, told.encode())  # not by a logger: a lock of it may have been held
            os._exit(0)
