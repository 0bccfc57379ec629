"""What is done when a call fails: declared with the operator, obeyed wherever it runs.

Only what another attempt may mend is tried again: time-outs, lost connections, an endpoint that is
overloaded or asks to wait. What is wrong with the request itself fails at once.
"""

from __future__ import annotations

import email.utils
from collections.abc import Mapping
from dataclasses import dataclass

from circinus.pipelines import checks

_AGAIN = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
"""HTTP statuses after which another attempt may succeed (RFC 9110, RFC 6585; 529: overloaded)."""

_LOST = frozenset(
    {"TimeoutError", "ConnectionError", "APITimeoutError", "APIConnectionError", "TransportError"}
)
"""Names of errors, and of what they derive from, that say nothing of the request: Python's own,
and those of the clients of hosted models and of httpx."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRetries:
    """How often a failed call is made anew, and after how long."""

    attempts: int = 3  # in all, `>= 1`; 1: none is made anew
    first_wait_s: float = 0.5  # before the second attempt, `>= 0`; doubled before each further one
    longest_wait_s: float = 30.0  # of these waits, and of one that the endpoint asks for, `>= 0`
    timeout_s: float | None = None  # of one attempt, `> 0`; None: that of the endpoint

    def __post_init__(self) -> None:
        checks.at_least("retries.attempts", self.attempts, 1)
        checks.non_negative("retries.first_wait_s", self.first_wait_s)
        checks.non_negative("retries.longest_wait_s", self.longest_wait_s)
        checks.positive("retries.timeout_s", self.timeout_s)

    def wait_s(
        self, attempt: int, error: BaseException, now_s: float, chance: float
    ) -> float | None:
        """Return how long to wait after an attempt that failed; None: it is not made anew.

        Attempts are counted from 1; `now_s` is the time of the day in seconds since 1970, `chance`
        in [0, 1) spreads the waits of many callers over half to all of the time. An endpoint that
        asks for longer than `longest_wait_s` is not asked again.
        """
        if attempt >= self.attempts or not is_passing(error):
            return None
        asked_s = retry_after_s(error, now_s)
        if asked_s is not None:
            return asked_s if asked_s <= self.longest_wait_s else None
        longest = min(self.first_wait_s * 2.0 ** (attempt - 1), self.longest_wait_s)
        return longest * (1 + chance) / 2


def is_passing(error: BaseException) -> bool:
    """Say whether another attempt may succeed where this one failed."""
    status = status_of(error)
    if status is not None:
        return status in _AGAIN
    return any(kind.__name__ in _LOST for kind in type(error).__mro__)


def status_of(error: BaseException) -> int | None:
    """Return the HTTP status that an error tells of; None: it tells of none.

    Clients of hosted models keep it in `status_code`, of the error or of its `response`.
    """
    for told in (error, getattr(error, "response", None)):
        status = getattr(told, "status_code", None)
        if isinstance(status, int):
            return status
    return None


def retry_after_s(error: BaseException, now_s: float) -> float | None:
    """Return the seconds that the endpoint asks to wait, `>= 0`; None: it asks for none.

    From `Retry-After`, in seconds or as a date (RFC 9110, 10.2.3), or `retry-after-ms`.
    """
    headers = getattr(getattr(error, "response", None), "headers", None)
    if not isinstance(headers, Mapping):
        return None
    by_name = {str(name).lower(): str(value) for name, value in headers.items()}
    told_ms, told = by_name.get("retry-after-ms"), by_name.get("retry-after")
    seconds = _number(told_ms)
    if seconds is not None:
        return max(seconds / 1000, 0.0)
    seconds = _number(told)
    if seconds is not None or told is None:
        return None if seconds is None else max(seconds, 0.0)
    try:
        return max(email.utils.parsedate_to_datetime(told).timestamp() - now_s, 0.0)
    except (TypeError, ValueError):
        return None


def _number(text: str | None) -> float | None:
    try:
        found = float(text or "")
    except ValueError:
        return None
    return found if found == found else None  # NaN is not itself
