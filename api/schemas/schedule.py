"""The schedule as the service shows it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from circinus.api.schemas.base import Cost, Input, Machines, Time, View, Weight
from circinus.api.schemas.deployments import LatelyView
from circinus.api.schemas.query import Priority, Tenant
from circinus.scheduler.problem import SHARE, Objective


class MachineShare(View):
    """A share of one machine."""

    tier: str = Field(description="Name of the tier.")
    machine: int = Field(description="Index of the machine within the tier.")
    share: float = Field(description="Of the machine, in (0, 1].")
    machine_type: str | None = None
    """Type of the machine; none: its tier has no types."""


class AssignmentView(View):
    """An admitted query."""

    query_id: str = Field(description="Which query.")
    plan_id: str = Field(description="With which plan.")
    machines: list[MachineShare] = Field(description="On which machines.")
    since: Time | None = Field(default=None, description="Since when it is served, UTC.")
    cost_usd_per_hour: float | None = None
    """At the prices of these machines, and of calls; a plan's own is what it costs at most."""
    pool: dict[str, dict[str, int]] | None = None
    """Chosen mix that it is on: tier -> machine type -> slices; none: its plan's own replicas."""
    extras: list[MachineShare] = Field(default_factory=list)
    """Where further replicas are, while more requests arrive than planned for and room is left;
    not counted in `cost_usd_per_hour` and utilisation."""
    lately: list[LatelyView] = Field(default_factory=list)
    """Figures of its requests in the last minute, ten minutes and hour; only if requested."""


class WaitingView(View):
    """A query that has plans but no capacity."""

    query_id: str = Field(description="Which query.")
    reason: str = Field(description="Why, and what would let it in, in words.")
    since: Time | None = Field(default=None, description="Since when it waits, UTC.")


class DisplacedView(View):
    """A query that had to make way."""

    query_id: str = Field(description="Who ran.")
    by: str | None
    """The query that received its machines; none: its machines or its plan are gone."""
    moved: bool
    """Whether it is served all the same, elsewhere or with another plan."""
    sentence: str = Field(description="The same in words.")
    at: Time | None = Field(default=None, description="When, UTC; none in a preview.")


class TierUse(View):
    """How much of a tier is in use."""

    tier: str = Field(description="Name of the tier.")
    machines: int
    """Machines there are; of a dedicated tier, that each query has."""
    used: float = Field(description="Sum of the shares in use, in machines.")
    utilisation: float = Field(description="Used part of the tier, in [0, 1].")
    dedicated: bool = False
    """Whether every query has machines of its own here."""
    emulated: bool = False
    """Whether the tier's speed is put on by waiting."""


class EndpointUse(View):
    """How much of a limit of an endpoint the plans need that are served."""

    endpoint: str = Field(description="Name of the endpoint.")
    kind: str = Field(description="`requests` or `tokens`.")
    per_minute: int = Field(description="So many are let through.")
    used: float
    """Part in [0, 1] that plans need of what they may need together: of seven tenths of it."""


class RentedMachines(View):
    """Machines of a tier, or of a type of it, that hold anything."""

    tier: str = Field(description="Name of the tier.")
    machine_type: str | None = None
    """Type of the machines; none: their tier has no types."""
    machines: list[int] = Field(description="Indices of the machines within the tier.")
    price_usd_per_hour: float = Field(description="Of each of them, as a whole machine.")


class RentView(View):
    """What a schedule rents, and what serving all queries costs at least."""

    machines: list[RentedMachines] = Field(description="By tier and type.")
    usd_per_hour: float = Field(description="Of these machines and of calls.")
    calls_usd_per_hour: float = Field(description="Of it, that of calls.")
    most_usd_per_hour: float | None = Field(default=None, description="Its limit; none: any.")
    serves_all: bool = Field(description="Whether every live query with plans is served.")
    least_usd_per_hour: float | None = None
    """What serving all costs at least, whatever is moved and spent (integer program); none: the
    machines do not suffice for all, however they are used."""
    proven: bool
    """Whether that is the optimum, or that there is none; else it is a bound."""
    gap: float | None = None
    """Part by which it costs more than the least; none: it does not serve all."""


class ScheduleView(View):
    """Which queries are admitted, with which plan, on which machines."""

    assignments: list[AssignmentView] = Field(description="Admitted queries.")
    waiting: list[WaitingView] = Field(description="Queries without capacity.")
    tiers: list[TierUse] = Field(description="Every tier that has machines.")
    endpoints: list[EndpointUse] = Field(default_factory=list)
    """Every limit in requests or tokens per minute."""
    goodput: float | None = None
    """The objective: sum of the weights of the live queries that are served, scaled where
    priorities differ, so that one query outweighs all of lower priority."""
    bound: float | None = None
    """No schedule on these machines serves more weight (linear relaxation)."""
    gap: float | None = None
    """Part of the bound that is not reached, in [0, 1]; the optimum may be nearer."""
    objective: Objective = Objective.GOODPUT
    """What it seeks: `goodput` of the machines there are, or `cost` of serving all queries."""
    rent: RentView | None = Field(default=None, description="With the objective `cost` only.")
    displaced: list[DisplacedView] = Field(default_factory=list)
    """Recent displacements, the latest first; in a preview, those that it would cause."""
    revision: int | None = Field(default=None, description="Counts schedules; none in a preview.")
    made_at: Time | None = None
    """When it was made, UTC; none in a preview and before the first."""


class DemandInput(Input):
    """An item of a plan's demand."""

    tier: str = Field(description="Name of the tier.")
    share: Annotated[float, Field(ge=SHARE.least, le=1)] = Field(description="Of one machine.")


class PlanInput(Input):
    """A plan of a hypothetical query."""

    id: str = Field(description="Unique within the query.")
    demand: list[DemandInput] = Field(max_length=64, description="What it asks of machines.")
    cost_usd_per_hour: Cost = Field(default=0.0, description="Price of the demand.")


class ArrivalInput(Input):
    """A hypothetical query."""

    id: str = Field(description="Unlike those of the live queries.")
    plans: Annotated[list[PlanInput], Field(min_length=1, max_length=1000)]
    """Any of them would do."""
    weight: Weight = Field(default=1.0, description="Benefit of serving it.")
    priority: Priority = 0
    """Precedes any number of queries of lower priority."""
    tenant: Tenant = Field(default="", description="Whose it is; quotas count by it.")


class PreviewBody(Input):
    """A change to try out; nothing is changed by it."""

    machines: dict[str, Machines] = Field(default_factory=dict)
    """Tier, or `TIER/TYPE`, -> number of machines instead of those there are."""
    leaving: list[str] = Field(default_factory=list, max_length=4000)
    """Live queries that would be gone."""
    arriving: list[ArrivalInput] = Field(default_factory=list, max_length=400)
    """Hypothetical further queries."""
    objective: Annotated[Objective | None, Field(strict=False)] = None
    """`goodput` or `cost`; none: that of the service."""
    most_usd_per_hour: Cost | None = None
    """Limit of what rented machines and calls cost, instead of the service's; none: that one."""
    quotas: dict[str, Annotated[float, Field(ge=0, le=1)]] = Field(default_factory=dict)
    """Tenant -> largest part of each shared tier, instead of its quota."""
