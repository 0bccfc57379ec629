"""The exit codes of every command."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """What a script learns from a command."""

    OK = 0
    INTERNAL = 1
    """Something failed that is not the caller's doing, or no service answered."""
    BAD_INPUT = 2
    INFEASIBLE = 3
    """No plan can meet the objectives."""
    EXHAUSTED = 4
    """A limit ended planning before a feasible plan was found."""
    DIFFERS = 5
    """The cluster is not as rendered."""
    REFUSED = 6
    """The cluster said no: conflict, quota, admission, a missing role or namespace."""
    NO_ROOM = 7
    """The nodes have no room."""
    NOT_READY = 8
    """Workers are not ready, in time or now."""
    INTERRUPTED = 130


EPILOG = (
    "Exit codes: 0 ok, 1 internal error or no service, 2 bad input, 3 infeasible, "
    "4 budget exhausted; of deploy: 5 differs, 6 refused by the cluster, 7 no room, 8 not ready."
)
