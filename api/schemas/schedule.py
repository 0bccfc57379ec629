"""The schedule as the service shows it."""

from __future__ import annotations

from api.schemas.base import View


class MachineShare(View):
    """A share of one machine."""

    tier: str
    """Name of the tier."""
    machine: int
    """Index of the machine within the tier."""
    share: float
    """Of the machine, in (0, 1]."""


class AssignmentView(View):
    """An admitted query."""

    query_id: str
    """Which query."""
    plan_id: str
    """With which plan."""
    machines: list[MachineShare]
    """On which machines."""


class WaitingView(View):
    """A query that has plans but no capacity."""

    query_id: str
    """Which query."""
    reason: str
    """Why, in words."""


class TierUse(View):
    """How much of a tier is in use."""

    tier: str
    """Name of the tier."""
    machines: int
    """Machines there are; of a dedicated tier, that each query has."""
    used: float
    """Sum of the shares in use, in machines."""
    utilisation: float
    """Used part of the tier, in [0, 1]."""
    dedicated: bool = False
    """Whether every query has machines of its own here."""
    emulated: bool = False
    """Whether the tier's speed is put on by waiting."""


class ScheduleView(View):
    """Which queries are admitted, with which plan, on which machines."""

    assignments: list[AssignmentView]
    """Admitted queries."""
    waiting: list[WaitingView]
    """Queries without capacity."""
    tiers: list[TierUse]
    """Every tier of the infrastructure."""
