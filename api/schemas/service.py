"""What a service plans for and offers, how deployments fare, and requests to them."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import ConfigDict, Field, JsonValue, model_validator

from circinus.api.schemas.base import BYTES_PER_MBIT, Input, View, having, left_out
from circinus.api.schemas.billed import UsageView
from circinus.api.schemas.numbers import WHOLE, Bandwidth, Delay, Machines, bounds
from circinus.api.schemas.query import Seed
from circinus.pipelines import checks
from circinus.pipelines.io.datasets import LARGEST_DATASET
from circinus.pipelines.model.configuration import ConfigurationSpace
from circinus.pipelines.model.infrastructure import Infrastructure, Link
from circinus.pipelines.model.operators import KnobValue, Scaling
from circinus.pipelines.model.tiers import MachineType, Tier
from circinus.pipelines.registry import ListedPipeline
from circinus.scheduler.rolling.replicas import REPLICAS

LONGEST_REQUEST_S = 600.0


class KnobView(View):
    """A named choice of an operator."""

    name: str = Field(description="Unique within its operator.")
    values: list[KnobValue] = Field(description="The choices.")
    ordered: bool = Field(description="Whether neighbouring values are alike.")


class OperatorView(View):
    """One step of a pipeline."""

    name: str = Field(description="Unique within the pipeline.")
    after: list[str] = Field(description="Operators whose outputs it takes.")
    knobs: list[KnobView] = Field(description="Its choices.")
    scaling: Scaling = Field(description="How its latency answers to a share of a machine.")


class MissingView(View):
    """Something that a pipeline needs and this machine lacks."""

    name: str = Field(description="What it is; of a pipeline that cannot be loaded, why.")
    install: str = Field(description="How to get it; empty when there is no way to.")


class PipelineView(View):
    """A registered pipeline."""

    name: str = Field(description="What a query calls it.")
    available: bool = Field(description="Whether it can run here.")
    missing: list[MissingView] = Field(description="Why not.")
    metric: str = Field(description="What its score means.")
    unit: str = Field(description="Unit of the score.")
    configurations: int
    """Size of its configuration space; 0: it cannot be loaded."""
    operators: list[OperatorView]
    """In topological order; none: it cannot be loaded."""


class PipelineList(View):
    """The registered pipelines."""

    items: list[PipelineView] = Field(description="By name.")


class CalibrationView(View):
    """Speed factors measured on a tier's workers."""

    date: str = Field(description="When, as YYYY-MM-DD.")
    share: float = Field(description="Of a machine that the workers had.")
    speeds: dict[str, float]
    """Class of operators -> how many times as fast as the reference machine."""
    within: float = Field(
        description="What requests take in settings that were not measured is, in 95 of 100, at "
        "most so many times as long, or as short, as predicted; 1: not measured."
    )


class GpusView(View):
    """The GPUs of one machine."""

    kind: str
    """How workers share them: `whole`, `mig`, `mps` or `time-sliced`."""
    count: int = Field(description="How many there are; with `mig`, how many of its devices.")
    parts: int = Field(description="Of each of them; 1: it is not divided further.")
    resource: str = Field(description="What nodes of a cluster offer them as.")


class MachineTypeView(View):
    """Machines of a tier that are alike, where it holds unlike ones."""

    name: str = Field(description="Unique within the tier.")
    machines: int = Field(description="How many there are now.")
    price_usd_per_hour: float = Field(description="Of one whole machine.")
    speed_factor: float = Field(description="How many times as fast as the reference machine.")
    calibration: CalibrationView | None = None
    """What was measured; none: nothing was."""
    gpus: GpusView | None = None
    """Of one machine; none: workers use none."""
    cores: float | None = None
    """Of one machine; none: as of every machine of a tier that does not tell."""
    memory_gib: float | None = Field(default=None, description="Likewise.")


class CallPriceView(View):
    """What calling an endpoint costs, in US dollars; parts that are not charged are 0."""

    input_usd_per_million: float = Field(default=0.0, description="Tokens read.")
    cached_usd_per_million: float | None = None
    """Of them, those that the endpoint had read before; none: as others."""
    output_usd_per_million: float = Field(default=0.0, description="Tokens written.")
    call_usd: float = Field(default=0.0, description="Each call.")
    usd_per_s: float = Field(default=0.0, description="Each second that a call takes.")
    source: str = Field(default="", description="Where the price is from, in words.")


class RateLimitsView(View):
    """How much of an endpoint may be used; none: any amount."""

    requests_per_minute: int | None = Field(default=None, description="Calls begun in any 60 s.")
    tokens_per_minute: int | None = None
    """Tokens read and written in any 60 s."""
    concurrent: int | None = Field(default=None, description="Calls under way at once.")


class EndpointView(View):
    """A hosted model that operators call."""

    name: str = Field(description="Unique within the infrastructure.")
    price: CallPriceView = Field(description="What calling it costs.")
    limits: RateLimitsView = Field(description="How much of it may be used.")
    most_input_tokens: int | None = None
    """That one call may read; none: not bounded."""
    most_output_tokens: int | None = None
    """That one call may write; none: not bounded."""
    timeout_s: float = Field(description="Seconds after which a call is given up.")


class TierView(View):
    """A pool of machines; with types, as slow as the slowest and as dear as the dearest.

    One with endpoints is remote: it has no machines, what is there is called.
    """

    name: str = Field(description="Unique within the infrastructure.")
    machines: int
    """How many there are now; of a dedicated tier, that each query has."""
    price_usd_per_hour: float = Field(description="Of one whole machine.")
    speed_factor: float = Field(description="How many times as fast as the reference machine.")
    dedicated: bool = Field(description="Whether every query has machines of its own here.")
    emulated: bool = Field(description="Whether the speed is put on by waiting.")
    call_s: float
    """Seconds that calling an instance there costs it, on the reference machine."""
    call_s_per_byte: float = Field(default=0.0, description="The same for each byte handed over.")
    call_delay_s: float = 0.0
    """Seconds that a call waits on its way there and back, whatever the share."""
    within: float = 1.0
    """Requests take at most so many times as long, or as short, as predicted, uncalibrated."""
    calibration: CalibrationView | None = None
    """What was measured; none: nothing was."""
    gpus: GpusView | None = None
    """Of one machine; none: workers use none, or those of its types are unlike."""
    cores: float | None = None
    """Of one machine, the least of its types; none: as of every tier that does not tell."""
    memory_gib: float | None = Field(default=None, description="Likewise.")
    types: list[MachineTypeView] = Field(default_factory=list)
    """Its types in the order of their machines' numbers; none: all machines are alike."""
    endpoints: list[EndpointView] = Field(default_factory=list)
    """What is called there; none: the tier is one of machines."""

    @property
    def remote(self) -> bool:
        """Whether it has no machines, but endpoints that are called."""
        return bool(self.endpoints)


class LinkView(View):
    """A connection between two tiers."""

    between: tuple[str, str] = Field(description="The two tiers.")
    bandwidth_bytes_per_s: float = Field(description="Bytes per second.")
    delay_s: float = Field(description="Seconds until the first byte arrives.")
    emulated: bool = Field(description="Whether the time is put on by waiting.")


class MachinesBody(Input):
    """Machines that come or go."""

    machines: Annotated[dict[str, Machines | None], Field(min_length=1, max_length=1000)]
    """Shared tier, or `TIER/TYPE` where it has types, -> how many it has from now on; none: as
    many as the infrastructure states."""


class LinkBody(Input):
    """A link as it is imitated."""

    between: list[str] = Field(
        min_length=2,
        max_length=2,
        description="The two tiers.",
        json_schema_extra={"uniqueItems": True},
    )
    bandwidth_mbit_per_s: Bandwidth = Field(description="Megabits per second.")
    delay_s: Delay = Field(default=0.0, description="Seconds until the first byte arrives.")


class EmulationBody(Input):
    """What is imitated from now on, apart from what is planned for."""

    links: Annotated[list[LinkBody], Field(min_length=1, max_length=800)]
    """Emulated links; those left out stay as they are."""


class InfrastructureView(View):
    """What the service plans for."""

    name: str = Field(description="For people.")
    origin: str = Field(description="Tier where requests arrive.")
    tiers: list[TierView] = Field(description="From the device towards the cloud.")
    links: list[LinkView] = Field(default_factory=list, description="Between the tiers.")


class InstanceView(View):
    """One running worker process."""

    tier: str = Field(description="Tier that it stands for.")
    machine_type: str | None = None
    """Type of its machine; none: the tier has no types."""
    operators: list[str] = Field(default_factory=list, description="Operators that it runs.")
    pid: int | None = None
    """Process id, where it is a process of this machine."""
    address: str = Field(description="Where it listens.")
    share: float = Field(description="Of one machine, in (0, 1].")
    enforcement: str = Field(
        description="How the share is enforced: `cgroup`, `device`, `duty cycle`."
    )
    emulated: bool = Field(description="Whether the tier's speed is put on by waiting.")
    calls_at_once: int | None = None
    """Calls to endpoints that it makes at a time; none: its tier has machines. With it the share
    is of none."""
    beside: list[str] = Field(default_factory=list)
    """Addresses of further workers that serve as it does, where somebody scaled its Deployment."""
    restarts: int = Field(default=0, description="How often it was started again.")
    ended: str | None = None
    """How it ended last, or why it was replaced; none: it never was."""


class ObservedView(View):
    """What the last requests took. Figures are none until there is a request."""

    count: int = Field(default=0, description="Requests answered since deployment.")
    failed: int = Field(default=0, description="Requests that failed since deployment.")
    mean_s: float | None = Field(default=None, description="Mean latency in seconds.")
    p50_s: float | None = Field(default=None, description="Median latency in seconds.")
    p90_s: float | None = Field(default=None, description="90th percentile in seconds.")
    p99_s: float | None = Field(default=None, description="99th percentile in seconds.")
    window: int | None = None
    """Number of latest requests that the figures are over; none: all."""


class LatelyView(View):
    """What requests got within so many seconds."""

    span_s: float = Field(description="So many seconds back from now.")
    requests: int = Field(description="Answered, turned away or failed.")
    in_time: int = Field(description="Answered within the latency objective.")
    turned_away: int = Field(description="Refused, so that others are in time.")
    failed: int = Field(description="Those that got another error.")
    goodput_per_s: float = Field(description="Answers in time per second.")
    p50_s: float | None = Field(default=None, description="Median seconds from arrival.")
    p95_s: float | None = Field(default=None, description="95th percentile in seconds.")
    p99_s: float | None = Field(default=None, description="99th percentile in seconds.")


class ObjectiveView(View):
    """An objective of a query, judged by what its requests got lately."""

    name: str = Field(description="`accuracy`, `latency`, `cost`, `cost_per_1000`, `throughput`.")
    bound: float = Field(description="What is asked for.")
    state: str
    """`met` or `missed` where a 95 % interval says so, else `unsure`."""
    value: float | None = Field(default=None, description="What was observed; none: nothing.")
    low: float | None = Field(default=None, description="Lower end of its interval.")
    high: float | None = Field(default=None, description="Upper end of it.")
    confidence: float | None = None
    """Of the interval; less than 0.95: requests are too few for that."""
    requests: int = Field(default=0, description="Requests that it rests on.")
    span_s: float | None = None
    """Within so many seconds back from now; none: whenever."""
    why: str | None = Field(default=None, description="Of `unsure`, in words.")


class ObjectivesView(View):
    """How a query fares by its requests, apart from what its plan promised."""

    query_id: str = Field(description="Of which query.")
    plan_id: str = Field(description="Plan that answered.")
    state: str
    """`missed` if one is; `unsure` if one is not known, of accuracy apart; else `met`."""
    sentence: str = Field(description="The same in words, with figures.")
    objectives: list[ObjectiveView] = Field(description="Each of them.")
    overload: str | None = None
    """Why there is too much to do, in words; none: there is not."""
    rate_per_s: float = Field(description="Requests that come a second, refused ones too.")
    planned_per_s: float | None = None
    """How many its plan is for; none: any."""
    requests: int = Field(description="Answered, turned away or failed in the last minute.")
    turned_away: int = Field(description="Of them, refused so that others are in time.")
    failed: int = Field(description="Of them, those that got another error.")
    waiting: int = Field(description="Requests without a turn at this moment.")
    replicas: dict[str, int] = Field(default_factory=dict)
    """Tier -> workers that take requests."""
    scaled_tier: str | None = None
    """Tier whose replicas a number of replicas counts; none: there are never others."""


class ObjectiveList(View):
    """How all queries that are served fare by their requests."""

    items: list[ObjectivesView] = Field(description="By query id.")


class DeploymentView(View):
    """The deployment of a query."""

    query_id: str = Field(description="Whose deployment.")
    plan_id: str | None = Field(default=None, description="Plan that runs.")
    phase: str = Field(description="`starting`, `ready`, `failed`, `stopped` ...")
    message: str | None = Field(default=None, description="More about the phase, in words.")
    instances: list[InstanceView] = Field(default_factory=list)
    """The worker processes."""
    observed: ObservedView = Field(default_factory=ObservedView, description="What requests took.")
    lately: list[LatelyView] = Field(default_factory=list)
    """What requests got in the last minute, ten minutes and hour, while it serves."""
    objectives: ObjectivesView | None = None
    """Whether it gives what is asked for; none until it was looked at."""


class ReplicasBody(Input):
    """How many replicas a query should have."""

    replicas: Annotated[int, bounds(REPLICAS), WHOLE]
    """Of its plan, on the shared tier where that has most; others in proportion, and never fewer
    than its own."""


class ExampleReference(Input):
    """One of the examples that the pipeline makes or loads."""

    index: Annotated[int, Field(ge=0, lt=LARGEST_DATASET), WHOLE]
    """Which example, from 0."""
    seed: Seed = Field(default=0, description="Of the examples.")
    count: Annotated[int, Field(ge=1, le=LARGEST_DATASET), WHOLE] = 200
    """How many examples are made or loaded, of which this is one."""

    @model_validator(mode="after")
    def _within(self) -> ExampleReference:
        rule = f"must be less than count, which is {self.count}"
        checks.require(self.index < self.count, "index", rule, self.index)
        return self


class Late(StrEnum):
    """What becomes of a request that cannot be answered within the latency objective."""

    REFUSE = "refuse"  # it may be turned away, so that others are in time
    SERVE = "serve"


class RequestBody(Input):
    """An input of one's own, or an example of the pipeline, whose output is then scored.

    An array in an input is `{"$array": {"dtype", "shape", "base64"}}`, bytes are
    `{"$bytes": base64}`.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "anyOf": [
                {"required": ["input"], **left_out("example")},
                {"allOf": [having("example"), left_out("input")]},
            ]
        }
    )

    input: JsonValue = Field(
        default=None, description="What the source operators get; may be null."
    )
    example: ExampleReference | None = None
    """Take the input from the pipeline's examples."""
    timeout_s: Annotated[float, Field(ge=0.001, le=LONGEST_REQUEST_S)] = 30.0
    """Seconds to wait for the answer."""
    late: Late = Field(default=Late.REFUSE, strict=False)
    """Whether an answer that the latency objective calls late is still wanted, or 429 instead."""

    @model_validator(mode="after")
    def _one_input(self) -> RequestBody:
        named = sorted({"input", "example"} & self.model_fields_set)
        good = "input" in named if self.example is None else self.input is None
        checks.require(good, "", "must have exactly one of input, example", named)
        return self


class RequestReply(View):
    """The answer to a request and where its time went."""

    output: JsonValue
    """What the pipeline gave, arrays and bytes marked as in the request."""
    latency_s: float
    """Seconds from the dispatcher's start to the last operator's output."""
    operator_s: dict[str, float] = Field(default_factory=dict)
    """Operator -> seconds that it ran, waiting for its share included."""
    tier_s: dict[str, float] = Field(default_factory=dict)
    """Tier -> seconds spent there."""
    transfer_s: float = Field(default=0.0, description="Seconds spent between tiers.")
    usd: float = Field(default=0.0, description="US dollars that its calls to endpoints cost.")
    used: dict[str, UsageView] = Field(default_factory=dict)
    """Operator -> what it used of endpoints, all attempts; those that called none are left out."""
    plan_id: str | None = Field(default=None, description="Plan that answered.")
    score: float | None = None
    """Of the output, in [0, 1]; none without an expected output."""
    emulated: bool = False
    """Whether a tier or link on the way is emulated by waiting."""
    planned_on: bool | None = None
    """Whether the input of an example is one of the query's data; none: it was no example."""


def pipeline_view(listed: ListedPipeline) -> PipelineView:
    """Return a pipeline as it is listed."""
    graph = None if listed.pipeline is None else listed.pipeline.graph
    return PipelineView.of(
        listed,
        available=not listed.missing,
        metric="" if graph is None else graph.metric,
        unit="" if graph is None else graph.unit,
        configurations=0 if graph is None else ConfigurationSpace(graph).size,
        operators=() if graph is None else graph.operators,
    )


def to_links(body: EmulationBody) -> list[Link]:
    """Return the links of a body; InvalidInput if one connects a tier to itself."""
    return [
        Link(
            between=(link.between[0], link.between[1]),
            bandwidth_bytes_per_s=link.bandwidth_mbit_per_s * BYTES_PER_MBIT,
            delay_s=link.delay_s,
        )
        for link in body.links
    ]


def infrastructure_view(infrastructure: Infrastructure) -> InfrastructureView:
    """Return an infrastructure as the service shows it."""
    return InfrastructureView.of(infrastructure, tiers=[*map(_tier_view, infrastructure.tiers)])


def _tier_view(tier: Tier) -> TierView:
    types = [
        MachineTypeView.of(e, calibration=_calibration_view(e), gpus=_gpus_view(e))
        for e in tier.types
    ]
    return TierView.of(
        tier, calibration=_calibration_view(tier), gpus=_gpus_view(tier), types=types
    )


def _gpus_view(of: Tier | MachineType) -> GpusView | None:
    return None if of.gpus is None else GpusView.of(of.gpus)


def _calibration_view(of: Tier | MachineType) -> CalibrationView | None:
    if of.calibration is None:
        return None
    speeds = {name: of.speed_of(name) for name in of.calibration.speeds}
    return CalibrationView.of(of.calibration, speeds=speeds)
