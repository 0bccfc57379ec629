"""What a service plans for and offers, how deployments fare, and requests to them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from circinus.api.schemas.base import BYTES_PER_MBIT, Bandwidth, Delay, Input, Machines, Time, View
from circinus.pipelines.model.configuration import ConfigurationSpace
from circinus.pipelines.model.infrastructure import Infrastructure, Link
from circinus.pipelines.model.operators import KnobValue, Scaling
from circinus.pipelines.model.tiers import MachineType, Tier
from circinus.pipelines.registry import ListedPipeline


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
    examples: int | None = Field(default=None, description="How many it has; none: any number.")
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
    """Of one machine; none: the default of tiers without one."""
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
    """Of one machine, the least of its types; none: the default of tiers without one."""
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


class DeviceView(View):
    """Devices of users that are alike; what is none is as their tier and links have it."""

    name: str = Field(description="What a query names as its device.")
    machines: int = Field(description="How many users have one.")
    speed_factor: float | None = None
    """How many times as fast as the reference machine."""
    bandwidth_bytes_per_s: float | None = Field(default=None, description="Of its links.")
    delay_s: float | None = Field(default=None, description="Of its links.")


class MachinesBody(Input):
    """Added or removed machines."""

    machines: Annotated[dict[str, Machines | None], Field(min_length=1, max_length=1000)]
    """Shared tier, or `TIER/TYPE` where it has types, -> how many it has from now on; none: as
    many as the infrastructure states."""


class LinkBody(Input):
    """A link as it is emulated."""

    between: list[str] = Field(
        min_length=2,
        max_length=2,
        description="The two tiers.",
        json_schema_extra={"uniqueItems": True},
    )
    bandwidth_mbit_per_s: Bandwidth = Field(description="Megabits per second.")
    delay_s: Delay = Field(default=0.0, description="Seconds until the first byte arrives.")


class EmulationBody(Input):
    """The links to emulate from now on, apart from those that are planned for."""

    links: Annotated[list[LinkBody], Field(min_length=1, max_length=800)]
    """Emulated links; those left out stay as they are."""


class InfrastructureView(View):
    """What the service plans for."""

    name: str = Field(description="For people.")
    origin: str = Field(description="Tier where requests arrive.")
    tiers: list[TierView] = Field(description="From the device towards the cloud.")
    links: list[LinkView] = Field(default_factory=list, description="Between the tiers.")
    devices: list[DeviceView] = Field(default_factory=list, description="Unlike ones of users.")


def pipeline_view(listed: ListedPipeline) -> PipelineView:
    """Return a pipeline as it is listed."""
    graph = None if listed.pipeline is None else listed.pipeline.graph
    return PipelineView.of(
        listed,
        available=not listed.missing,
        metric="" if graph is None else graph.metric,
        unit="" if graph is None else graph.unit,
        examples=None if listed.pipeline is None else listed.pipeline.example_count,
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
    types = [MachineTypeView.of(e, calibration=_calibration_view(e)) for e in tier.types]
    return TierView.of(tier, calibration=_calibration_view(tier), types=types)


def _calibration_view(of: Tier | MachineType) -> CalibrationView | None:
    if of.calibration is None:
        return None
    speeds = {name: of.speed_of(name) for name in of.calibration.speeds}
    return CalibrationView.of(of.calibration, speeds=speeds)


class DatasetView(View):
    """A data set that was handed over."""

    id: str = Field(description="Of its content: the same content has the same id.")
    kind: str = Field(description="`jsonl`, or `zip` of a folder.")
    size_bytes: int = Field(description="As it was handed over.")
    inputs: int = Field(description="How many inputs it has.")
    created_at: Time = Field(description="When it was handed over first, UTC.")
    queries: list[str] = Field(default_factory=list)
    """Queries that use it, and prevent its deletion."""


class DatasetList(View):
    """All data sets."""

    items: list[DatasetView] = Field(description="The newest first.")
