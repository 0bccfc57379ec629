"""A plan with all that runs it without a service: what a rendered file hands to `plan_server`."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from circinus.api.schemas.base import Input
from circinus.api.schemas.plans import PlanView


class PlanFile(Input):
    """A plan whose workers listen at known addresses."""

    query_id: str = Field(description="Under which requests come.")
    pipeline: str = Field(description="Registered name, or module:attribute.")
    plan: PlanView
    machine_types: list[str | None] = Field(default_factory=list)
    """Of the machine of each item of its demand; none: as its whole tier is."""
    infrastructure: dict[str, Any]
    """Document of an infrastructure: what it emulates is waited for."""
    deadline_s: float | None = None
    """Within which its requests are in time; none: whenever."""
    addresses: list[str]
    """Of its instances, in their order."""
