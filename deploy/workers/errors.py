"""What can go wrong between dispatcher and workers, beyond the project's errors.

Those that are `Unavailable` do not concern the request itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from circinus.pipelines.errors import CircinusError, OperatorFailed, Unavailable, Violation
from circinus.pipelines.model.endpoints import Usage


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


class CallFailed(OperatorFailed):
    """An operator that calls endpoints failed: what was used, and when the next attempt is due."""

    def __init__(
        self,
        operator: str,
        cause: str,
        violations: Sequence[Violation],
        used: Mapping[str, Mapping[str, Usage]],
        again_in_s: float | None,
    ) -> None:
        super().__init__(operator, cause, violations)
        self.used = used  # operator -> endpoint -> what was used, of all that ran in the call
        self.again_in_s = again_in_s  # None: no other attempt is made
