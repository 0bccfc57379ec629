"""External programs that operators call; those that nobody has read run in `execution.contained`.

The one rule: a program ends within its time-out, by itself or killed, and reports why it failed.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from circinus.pipelines.errors import CircinusError

_LONGEST_COMPLAINT = 200


class ProgramFailed(CircinusError):
    """A program is missing, took too long or ended with an error."""


def output_of(command: Sequence[str], *, inputs: bytes = b"", timeout_s: float) -> bytes:
    """Return a program's standard output; ProgramFailed if it is late or ends with an error."""
    program = command[0]
    try:
        done = subprocess.run(
            command, input=inputs, capture_output=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise ProgramFailed(f"{program} took longer than {timeout_s:g} s") from error
    except OSError as error:
        raise ProgramFailed(f"{program} cannot be started ({error.strerror})") from error
    if done.returncode != 0:
        complaint = done.stderr.decode(errors="replace").strip()[-_LONGEST_COMPLAINT:]
        raise ProgramFailed(f"{program} ended with code {done.returncode}: {complaint}")
    return done.stdout
