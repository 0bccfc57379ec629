"""Pools of queries: which machine types serve a query, as clients say and see it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from circinus.api.schemas.base import Input, View
from circinus.api.schemas.numbers import WHOLE, bounds
from circinus.api.schemas.schedule import MachineShare
from circinus.scheduler.rolling.chosen import SLICES

_Kinds = Annotated[
    dict[str, Annotated[int, bounds(SLICES), WHOLE]], Field(min_length=1, max_length=64)
]


class PoolBody(Input):
    """The mix of machine types that should serve a query."""

    model_config = ConfigDict(
        json_schema_extra={
            "anyOf": [
                {"properties": {"follow": {"const": False}}},
                {"properties": {"slices": {"maxProperties": 1}}},
            ]
        }
    )

    slices: dict[str, _Kinds] = Field(min_length=1, max_length=64)
    """Shared tier with machine types -> type -> slices, each as large as the plan's share there;
    at least one of each tier. Other tiers are left to the plan."""
    follow: bool = False
    """Whether the mix is chosen anew and changed when requests have become other ones; of a pool
    of one tier."""


class PoolView(View):
    """The pool of a query, and whether the query has it."""

    query_id: str = Field(description="Whose it is.")
    slices: dict[str, dict[str, int]] = Field(description="Tier -> machine type -> slices.")
    state: Literal["placed", "lacking", "pending"]
    """`placed`: the schedule has it; `lacking`: something is missing, and the query is served as
    before; `pending`: the schedule follows within a moment."""
    missing: str | None = Field(default=None, description="What is missing, in words.")
    follow: bool = Field(default=False, description="Whether it follows the requests.")
    machines: list[MachineShare] = Field(default_factory=list)
    """Where the query is now."""
    cost_usd_per_hour: float | None = None
    """At the prices of these machines; none: it is not served."""
