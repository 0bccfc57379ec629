"""The query: one schema for the query file and for the body of `POST /v1/queries`."""

from __future__ import annotations

import re
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from circinus.api.schemas.base import (
    BYTES_PER_MBIT,
    WHOLE,
    Bandwidth,
    Cost,
    CostPer1000,
    Delay,
    Duration,
    Input,
    Latency,
    LimitDollars,
    LimitSeconds,
    Rate,
    Speed,
    Weight,
    bounds,
    having,
    left_out,
)
from circinus.api.schemas.labels import MOST_LABELS, GoldLabel
from circinus.api.schemas.planning import PlanningRequest, to_planning
from circinus.api.schemas.violations import value_of
from circinus.deploy.methods import DEFAULT, Method
from circinus.pipelines import checks, ranges
from circinus.pipelines.errors import InvalidInput, Violation
from circinus.pipelines.io.datasets import LARGEST_DATASET
from circinus.pipelines.model.query import HIGHEST_PRIORITY, OnFailure, PlanningLimits, Query
from circinus.pipelines.model.restrictions import Stays
from circinus.pipelines.model.slo import ANY_LATENCY_S, HoldsFor, LatencyStatistic

LARGEST_SEED = 2**63 - 1
"""Seeds fit into a signed 64-bit column."""
LONGEST_TEXT = 4096

_PIPELINE = rf"{checks.NAME}(:[A-Za-z_][A-Za-z0-9_.]{{0,126}})?"

Priority = Annotated[int, Field(ge=0, le=HIGHEST_PRIORITY), WHOLE]


def _tenant(value: str) -> str:
    if value:
        checks.name("", value)
    return value


Tenant = Annotated[
    str, Field(json_schema_extra={"pattern": rf"^({checks.NAME})?$"}), AfterValidator(_tenant)
]
_SOURCES = ("examples", "folder", "jsonl", "dataset")
Seed = Annotated[int, Field(ge=0, le=LARGEST_SEED), WHOLE]


def _only(source: str) -> dict[str, Any]:
    alone = having(source)
    alone["properties"] |= left_out(*(name for name in _SOURCES if name != source))["properties"]
    if source != "examples":
        alone["properties"]["seed"] = {"const": 0}
    return alone


class DataSource(Input):
    """Which inputs to profile on: examples of the pipeline, or data of one's own.

    A folder or a JSON-lines file is read by the command line, which plans on it in its own process
    or hands it over to the service as a data set.
    """

    model_config = ConfigDict(json_schema_extra={"oneOf": [*map(_only, _SOURCES)]})

    examples: Annotated[int, Field(ge=1, le=LARGEST_DATASET), WHOLE] | None = None
    """Number of examples that the pipeline makes or loads."""
    seed: Seed = 0
    """Of the examples; another seed draws other inputs. Only with `examples`."""
    folder: Annotated[str, Field(min_length=1, max_length=LONGEST_TEXT)] | None = None
    """Folder with the inputs and their expected outputs."""
    jsonl: Annotated[str, Field(min_length=1, max_length=LONGEST_TEXT)] | None = None
    """File of JSON lines, each with `input` and `expected`."""
    dataset: Annotated[str, Field(pattern=r"^d-[0-9a-f]{32}$")] | None = None
    """Id of a data set that was handed over to the service."""
    on_failure: OnFailure = Field(default=OnFailure.SCORE_ZERO, strict=False)
    """What an input on which an operator fails means: it scores zero (`score_zero`); it also
    leaves the data once it failed in all of three configurations, or of all where there are fewer
    (`drop`); or planning ends (`stop`)."""

    @model_validator(mode="after")
    def _one_source(self) -> DataSource:
        sources = self.model_dump(include=set(_SOURCES), exclude_none=True)
        rule = f"must have exactly one of {', '.join(_SOURCES)}"
        checks.require(len(sources) == 1, "", rule, sources)
        seeded = self.seed != 0 and self.examples is None
        checks.require(not seeded, "seed", "must be left out without examples", self.seed)
        return self


class SloRequest(Input):
    """What must hold. Bounds are inclusive."""

    model_config = ConfigDict(
        json_schema_extra={"anyOf": [having("latency_s"), having("throughput_per_s")]}
    )

    accuracy: float = Field(ge=0, le=1, description="Least mean score over the data, in [0, 1].")
    latency_s: Latency | None = None
    """Most seconds per request; may be left out with `throughput_per_s` only: then any."""
    latency_statistic: LatencyStatistic = Field(default=LatencyStatistic.MEAN, strict=False)
    """Which figure of the latencies `latency_s` bounds."""
    cost_usd_per_hour: Cost | None = None
    """Most US dollars per hour of the deployed plan; left out: any."""
    cost_usd_per_1000_requests: CostPer1000 | None = None
    """Most US dollars of machines and calls together for 1,000 requests at the query's rate; left
    out: any."""
    throughput_per_s: Rate | None = None
    """Least requests per second that the plan finishes when it always has some to do; left out:
    any. For batch work: requests queue, and `latency_s` counts from when one is started."""

    holds_for: HoldsFor = Field(default=HoldsFor.EXAMPLES, strict=False)
    """Whether accuracy and latency must hold on the examples, or, with 95 % confidence, for future
    inputs of the same source; the view has the others too."""

    @model_validator(mode="after")
    def _some_speed(self) -> SloRequest:
        if self.latency_s is None and self.throughput_per_s is None:
            rule = "must be given without throughput_per_s"
            raise InvalidInput([Violation("latency_s", rule, "nothing")])
        return self


class LimitsRequest(Input):
    """What planning may spend. Every limit is hard."""

    profiling_s: LimitSeconds = PlanningLimits().profiling_s
    """Operator seconds on the reference machine."""
    profiling_usd: LimitDollars | None = None
    """US dollars at the reference tier's price; left out: any."""
    response_s: LimitSeconds | None = PlanningLimits().response_s
    """Wall-clock seconds from when operators can run to the answer; null: any. What else planning
    does than run operators may take as long as `profiling_s`, too."""
    configurations: Annotated[int, bounds(ranges.CONFIGURATIONS), WHOLE] | None = None
    """Most configurations to measure; left out: any."""


MOST_VALUES = 1000
LONGEST_VALUE = 1000


def _knob_value(value: object) -> object:
    """Refuse a value that no knob can have, in one violation instead of one per type."""
    short = isinstance(value, str) and len(value) <= LONGEST_VALUE
    finite = isinstance(value, int | float) and -(2**63) <= value < 2**63
    checks.require(short or finite, "", "must be text, a finite number or a truth value", value)
    return value


KnobInput = Annotated[
    StrictBool | StrictInt | StrictFloat | StrictStr,
    BeforeValidator(_knob_value),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "boolean"},
                {"type": "number", "minimum": -(2**63), "exclusiveMaximum": 2**63},
                {"type": "string", "maxLength": LONGEST_VALUE},
            ]
        }
    ),
]
Name = Annotated[str, Field(min_length=1, max_length=63)]
_ANY = Field(max_length=MOST_VALUES, json_schema_extra={"uniqueItems": True})
_AT_LEAST_ONE = Field(
    min_length=1, max_length=MOST_VALUES, json_schema_extra={"uniqueItems": True}
)
_SOME_NEVER = {"required": ["never"], "properties": {"never": {"minItems": 1}}}
_EITHER: dict[str, Any] = {"anyOf": [having("only"), _SOME_NEVER]}


class _Choice(Input):
    model_config = ConfigDict(json_schema_extra=_EITHER)

    @model_validator(mode="after")
    def _has_a_rule(self) -> Self:
        if not self.model_dump(exclude_unset=True, exclude_none=True):
            raise InvalidInput([Violation("", "must say only or never", "{}")])
        return self


class TierChoice(_Choice):
    """The tiers that an operator may run on."""

    only: Annotated[list[Name], _AT_LEAST_ONE] | None = None
    """One of these; a single one pins the operator."""
    never: Annotated[list[Name], _ANY] = Field(default_factory=list)
    """None of these."""


class KnobChoice(_Choice):
    """The values that a knob may have."""

    only: Annotated[list[KnobInput], _AT_LEAST_ONE] | None = None
    """One of these; a single one pins the knob."""
    never: Annotated[list[KnobInput], _ANY] = Field(default_factory=list)
    """None of these."""


class RestrictionsRequest(Input):
    """What holds in every plan."""

    tiers: dict[Name, TierChoice] = Field(default_factory=dict, max_length=MOST_VALUES)
    """Operator -> where it may run."""
    knobs: dict[Name, Annotated[dict[Name, KnobChoice], Field(max_length=MOST_VALUES)]] = Field(
        default_factory=dict, max_length=MOST_VALUES
    )
    """Operator -> knob -> which values it may have."""
    stays_on_device: Stays = Field(default=Stays.NOTHING, strict=False)
    """What must not leave the tier where requests start: nothing, the input (operators that take
    it run there), or everything (all operators do)."""


class DeviceRequest(Input):
    """The query's own device; fields that are left out are those of the infrastructure."""

    name: Name | None = None
    """Of one of the infrastructure's `devices`, whose figures it has."""
    speed_factor: Speed | None = None
    """How many times as fast as the reference machine."""
    bandwidth_mbit_per_s: Bandwidth | None = Field(default=None, description="Of its links.")
    delay_s: Delay | None = Field(default=None, description="Of its links.")


class MetricRequest(Input):
    """What the scores of a pipeline that a judge scores are checked with.

    For the command line, which plans in its own process and takes labels there.
    """

    judge: Annotated[str, Field(min_length=1, max_length=63)]
    """Name of the pipeline's judge."""
    gold: (
        Annotated[str, Field(min_length=1, max_length=LONGEST_TEXT)]
        | Annotated[list[GoldLabel], Field(max_length=MOST_LABELS)]
    ) = Field(default_factory=list)
    """Labels that there are: a file of JSON lines, each with `label` and `gold`, or a list."""
    label_budget: Annotated[int, Field(ge=0, le=MOST_LABELS), WHOLE] = 0
    """Most labels to use, those in `gold` included."""


class QueryRequest(Input):
    """A pipeline on some data with objectives."""

    model_config = ConfigDict(
        json_schema_extra={
            "anyOf": [
                left_out("request_rate_per_s"),
                {"properties": {"slo": left_out("throughput_per_s")}},
            ]
        }
    )

    pipeline: Annotated[
        str, Field(max_length=190, json_schema_extra={"pattern": f"^{_PIPELINE}$"})
    ]
    """Name of a registered pipeline; on the command line also `module:attribute`."""
    data: DataSource = Field(description="Inputs to profile on.")
    slo: SloRequest = Field(description="What must hold.")
    request_rate_per_s: Rate | None = None
    """Expected requests per second; left out: one request at a time."""
    weight: Weight = 1.0
    """Benefit of serving the query, relative to others."""
    priority: Priority = 0
    """Precedes any number of queries of lower priority, and displaces them."""
    tenant: Tenant = ""
    """The query's owner: a name that the service's quotas count by; left out: none."""
    duration_s: Duration | None = None
    """Seconds to serve it; left out: until it is undeployed."""
    limits: LimitsRequest = Field(default_factory=LimitsRequest)
    """What planning may spend."""
    seed: Seed = Field(default=0, description="Of every random choice on the query's way.")
    restrictions: RestrictionsRequest = Field(default_factory=RestrictionsRequest)
    """What is not left to the planner."""
    device: DeviceRequest | None = None
    """The query's own device; left out: that of the infrastructure."""
    cold: bool = False
    """Whether planning starts from nothing that earlier queries measured."""
    planning: PlanningRequest | None = None
    """How it is planned; left out: by the service's method."""
    draws: Annotated[list[Name], _ANY] = Field(default_factory=list)
    """Operators that may answer equal inputs differently, as models that sample do: it is planned
    for the mean over draws of each input. Beside those that declare it, or are observed to."""
    metric: MetricRequest | None = None
    """Labels for a pipeline that a judge scores; left out: a metric scores it."""

    @property
    def document(self) -> dict[str, Any]:
        """As it is stored and sent: defaults filled in, and what is left out left out."""
        values = self.model_dump(mode="json", exclude_none=True)
        if self.limits.response_s is None:  # that is no bound, not the default
            values["limits"]["response_s"] = None
        return values

    @model_validator(mode="after")
    def _one_rate(self) -> QueryRequest:
        free = self.request_rate_per_s is None or self.slo.throughput_per_s is None
        rule = "must be left out with slo.throughput_per_s"
        checks.require(free, "request_rate_per_s", rule, self.request_rate_per_s)
        return self

    @field_validator("pipeline")
    @classmethod
    def _reference(cls, value: str) -> str:
        rule = (
            "must be a name (a letter, then at most 62 letters, digits, '_', '.', '-') "
            "or module:attribute"
        )
        checks.require(re.fullmatch(_PIPELINE, value) is not None, "", rule, value)
        return value


def to_query(
    request: QueryRequest, *, pipeline: str | None = None, method: Method = DEFAULT
) -> Query:
    """Return the query of a request.

    `pipeline` is the name of the loaded one, where the request names it by `module:attribute`.
    Parts of planning that the request leaves out are those of `method`: stored requests have all
    parts, except those from before there was a choice. InvalidInput if a value breaks a rule that
    the schema does not state.
    """
    values = request.model_dump(exclude={"data", "cold", "metric"})
    values["pipeline"] = pipeline or request.pipeline
    values["on_failure"] = request.data.on_failure
    if request.slo.latency_s is None:
        values["slo"]["latency_s"] = ANY_LATENCY_S
    device = values["device"]
    if device is not None and (rate := device.pop("bandwidth_mbit_per_s")) is not None:
        device["bandwidth_bytes_per_s"] = rate * BYTES_PER_MBIT
    values["planning"] = to_planning(request.planning, method)
    return value_of(Query, values)
