"""Which pool of instances to rent: bodies and answers."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from circinus.api.schemas.base import WHOLE, Input, View, bounds, having
from circinus.api.schemas.query import Seed
from circinus.api.schemas.schedule import MachineShare
from circinus.deploy.methods import DEFAULT
from circinus.pipelines import checks, ranges
from circinus.pipelines.ranges import Range
from circinus.scheduler.dispatch.policy import DISPATCH_POLICIES
from circinus.scheduler.pool.search import MOST_OF_TYPE
from circinus.scheduler.rolling.pooling import SLICES

LEAST_GAP_S = 1e-9
"""That one of recorded gaps has at least: of lesser ones the mean may be 0."""
_NAME = Field(min_length=1, max_length=64)
_Name = Annotated[str, _NAME]
_Type = Annotated[str, Field(pattern=rf"^{checks.NAME}$", description="Name of a type.")]
_MS = Range(0.001, 1e9)
_Milliseconds = Annotated[float, bounds(_MS)]
_Batch = Annotated[int, bounds(Range(1, 1_000_000)), WHOLE]
_Batches = Annotated[list[_Batch], Field(min_length=1)]
_Gaps = Annotated[
    list[Annotated[float, Field(ge=0, le=1e6)]],
    Field(min_length=1, json_schema_extra={"contains": {"minimum": LEAST_GAP_S}}),
]
_Rate = Annotated[float, bounds(ranges.RATE_PER_S)]
_Budget = Annotated[float, bounds(ranges.COST_USD_PER_HOUR)]
_Requests = Annotated[int, bounds(Range(100, 20_000)), WHOLE]
Method = Literal["simulated", "bound", "kairos", "kairos_plus", "ribbon", "oracle"]
"""How a pool is chosen, see `scheduler.simulation.pool_choice.ChoiceMethod`."""


class LatencyInput(Input):
    """What a batch was measured to take on a type."""

    type: _Type
    batch: _Batch = Field(description="Its size; a request is charged the next larger one.")
    mean_ms: _Milliseconds = Field(description="Mean milliseconds.")
    std_ms: float = Field(default=0.0, ge=0, le=_MS.most, description="Standard deviation.")


class PriceInput(Input):
    """What an hour of a type costs, in place of the built-in catalogue's figure."""

    name: _Type
    price_usd_per_hour: Annotated[float, bounds(ranges.PRICE_USD_PER_HOUR)]
    """US dollars."""
    date: str = Field(
        pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$",
        json_schema_extra={"format": "date"},
        description="Of the price.",
    )
    provider: _Name = Field(default="own", description="Who rents it out.")
    source: _Name = Field(default="as asked", description="Of the price, in words.")


class ChoosePoolBody(Input):
    """Measured latencies, what is sent, and a budget, a rate or both."""

    model_config = ConfigDict(
        json_schema_extra={"anyOf": [having("budget_usd_per_hour"), having("rate_per_s")]}
    )

    latencies: list[LatencyInput] = Field(min_length=1, max_length=10_000)
    """Every type at every batch size."""
    qos_ms: _Milliseconds = Field(description="Requests are due within.")
    budget_usd_per_hour: _Budget | None = None
    """The largest rate for it; with a rate: the most that the cheapest pool for it may cost."""
    rate_per_s: _Rate | None = Field(default=None, description="The cheapest pool for it.")
    most: dict[_Name, Annotated[int, bounds(Range(0, MOST_OF_TYPE)), WHOLE]] = Field(
        default_factory=dict
    )
    """Type -> most instances of it; others: 100."""
    types: list[_Type] = Field(
        default_factory=list, max_length=64, json_schema_extra={"uniqueItems": True}
    )
    """To choose among, the base type first; none: all."""
    prices: list[PriceInput] = Field(default_factory=list, max_length=64)
    mix: Literal["kairos", "ribbon", "gaussian"] | _Batches = "kairos"
    """Batch sizes: a mix of the papers, or sizes that were sent."""
    arrivals: Literal["poisson", "bursty"] | _Gaps = "poisson"
    """Gaps: a process, or seconds between requests that were sent, one of 1 ns at least."""
    dispatch: Literal[DISPATCH_POLICIES] = DEFAULT.dispatch  # type: ignore[valid-type]
    """The policy in use."""
    method: Method = Field(default="simulated", description="How pools are compared.")
    sampled: bool = Field(default=False, description="Each run takes its own luck, not the mean.")
    requests: _Requests = Field(default=10_000, description="Of a simulated run.")
    seed: Seed = Field(default=0, description="Of all draws.")


class PoolOfferView(View):
    """A pool, what it costs and what it serves."""

    pool: list[int] = Field(description="Instances of each type, in the order of the types.")
    price_usd_per_hour: float = Field(description="US dollars.")
    rate_rps: float | None = Field(default=None, description="99 % in time; none: not simulated.")
    bound_rps: float = Field(description="On the rate.")


class PricedTypeView(View):
    """What an hour of a type costs."""

    name: str = Field(description="Its name.")
    price_usd_per_hour: float = Field(description="US dollars.")
    date: str = Field(description="Of the price.")
    provider: str = Field(description="Who rents it out.")
    source: str = Field(description="Of the price, in words.")
    accelerator: str | None = Field(default=None, description="None: it has none.")
    memory_gb: float | None = Field(default=None, description="None: unknown.")


class PoolChoiceView(View):
    """Which pool to rent, and why."""

    types: list[str] = Field(description="Of the pools, in their order.")
    chosen: PoolOfferView | None = Field(default=None, description="None: no pool will do.")
    looked_at: int = Field(description="Pools whose bound was worked out.")
    tried: int = Field(description="Pools that were simulated.")
    sure: str = Field(description="How sure it is.")
    reason: str = Field(description="Why this pool, or why none.")
    front: list[PoolOfferView] = Field(description="What more or less money buys.")
    left_out: list[str] = Field(description="Types not looked at, and why.")
    prices: list[PricedTypeView] = Field(description="Of the types to choose among.")


class ChooseQueryPoolBody(Input):
    """For what a pool of a query is chosen; what is left out is as observed."""

    tier: _Name | None = Field(default=None, description="With machine types; none: its only one.")
    rate_per_s: _Rate | None = None
    """Requests per second; none: the recent rate and a tenth more, else the query's own."""
    budget_usd_per_hour: _Budget | None = None
    """On the tier; none: what the query's objective on cost leaves."""
    qos_ms: _Milliseconds | None = None
    """On the tier; none: the query's deadline, less what answers spend elsewhere."""
    method: Method = Field(default="simulated", description="How pools are compared.")
    requests: _Requests = Field(default=4_000, description="Of a simulated run.")
    seed: Seed = Field(default=0, description="Of all draws.")


class TypeServedView(View):
    """A machine type of the tier, and what it would do."""

    type: str = Field(description="Its name.")
    mean_ms: float = Field(description="Of a recent request.")
    slowest_ms: float = Field(description="Of the largest of them.")
    known: Literal["learnt", "by speed"]
    """Whether requests were served there, or it follows from speeds and the plan."""
    room: int = Field(description="Slices that could be there now, with the query's own.")


class QueryPoolView(View):
    """Which mix of machine types would serve a query, and why."""

    query_id: str = Field(description="Whose.")
    tier: str = Field(description="Whose machines.")
    share: float = Field(description="Of a machine that each slice takes.")
    slices: dict[str, dict[str, int]] | None = None
    """Tier -> type -> slices, as `PUT /v1/queries/{id}/pool` takes them; none: no pool will do."""
    seen: int = Field(description="Latest requests whose sizes it is chosen for.")
    rate_per_s: float | None = Field(default=None, description="Chosen for; none: for a budget.")
    qos_ms: float = Field(description="Due within, on the tier.")
    types: list[TypeServedView] = Field(description="The tier's, in the order of the pools.")
    choice: PoolChoiceView = Field(description="What was chosen, and why.")


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
