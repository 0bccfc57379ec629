"""How deployments fare, and requests to them."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import ConfigDict, Field, JsonValue, model_validator

from circinus.api.schemas.base import WHOLE, Input, View, bounds, having, left_out
from circinus.api.schemas.plans import UsageView
from circinus.api.schemas.query import Seed
from circinus.pipelines import checks
from circinus.pipelines.io.datasets import LARGEST_DATASET
from circinus.scheduler.rolling.replicas import REPLICAS

LONGEST_REQUEST_S = 600.0


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
    """Addresses of further workers that serve as it does, where its Deployment is scaled."""
    restarts: int = Field(default=0, description="How often it was started again.")
    ended: str | None = None
    """How it ended last, or why it was replaced; none: it never was."""


class ObservedView(View):
    """Latencies of the last requests. Figures are none until there is a request."""

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
    """An objective of a query, judged by its recent requests."""

    name: str = Field(description="`accuracy`, `latency`, `cost`, `cost_per_1000`, `throughput`.")
    bound: float = Field(description="The required value.")
    state: str
    """`met` or `missed` where a 95 % interval shows it, else `unsure`."""
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
    rate_per_s: float = Field(description="Arriving requests per second, refused ones too.")
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
    observed: ObservedView = Field(default_factory=ObservedView, description="Times of requests.")
    lately: list[LatelyView] = Field(default_factory=list)
    """What requests got in the last minute, ten minutes and hour, while it serves."""
    objectives: ObjectivesView | None = None
    """Whether it meets its objectives; none until the first look."""


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
    """The answer to a request and the parts of its latency."""

    output: JsonValue
    """The pipeline's output, arrays and bytes marked as in the request."""
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
