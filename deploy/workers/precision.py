"""Waits stand for shares and speeds here, so they have to end when they should."""

from __future__ import annotations

import ctypes

_PR_SET_TIMERSLACK = 29
_LEAST_NS = 1


def sharpen_timers() -> None:
    """Let waits of this thread, and of threads it starts later, end as exactly as they can.

    The kernel may end a wait 50 microseconds late by default, to save power.
    """
    ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, _LEAST_NS, 0, 0, 0)
