"""Where learnt latencies outlive the process: the seam between learning and remembering."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

Learnt = Mapping[str, Mapping[str, Mapping[str, object]]]
"""Tier -> kind of request and instance -> what `LearntLatency.dump` gave: JSON values."""


class LatencyMemory(Protocol):
    """Keeps what was learnt of a plan's latencies. Safe to share between threads.

    Calls may take long: they are made off the event loop.
    """

    def recall(self, plan_id: str) -> Learnt:
        """Give what was kept of a plan last; empty if nothing was."""

    def keep(self, plan_id: str, learnt: Learnt) -> None:
        """Replace what is kept of a plan."""


class Forgetful:
    """A `LatencyMemory` that keeps nothing."""

    def recall(self, plan_id: str) -> Learnt:
        """Give nothing."""
        return {}

    def keep(self, plan_id: str, learnt: Learnt) -> None:
        """Forget it."""
