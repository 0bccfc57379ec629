"""What can go wrong between dispatcher and workers, beyond the project's errors.

All of them are `Unavailable`: nothing is wrong with the request itself.
"""

from __future__ import annotations

from circinus.pipelines.errors import CircinusError, Unavailable


class TooManyRequests(Unavailable):
    """So many requests wait that this one could not be served in time."""


class DeadlineExceeded(Unavailable):
    """The request's time was over before its output was there."""

    def __init__(self, timeout_s: float, during: str) -> None:
        super().__init__(
            f"deadline of {timeout_s:g} s passed while {during}", retry_after_s=timeout_s
        )


class InstanceLost(Unavailable):
    """The instance at an address went away with the request in its hands."""

    def __init__(self, address: str, cause: str) -> None:
        super().__init__(f"instance at {address} was lost ({cause})", retry_after_s=1.0)


class LaunchFailed(CircinusError):
    """An instance did not start: the last lines of its log, and whether it was ended outside."""

    def __init__(self, name: str, cause: str, log: str, *, killed: bool = False) -> None:
        self.killed = killed
        super().__init__(f"instance {name} did not start: {cause}; its log ends with:\n{log}")
