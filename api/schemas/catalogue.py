"""The pipelines and the infrastructure that a service plans for."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from api.schemas.base import Input, View
from pipelines.configuration import ConfigurationSpace
from pipelines.infrastructure import Infrastructure, Link, Tier
from pipelines.operators import KnobValue, OperatorSpec, Scaling
from pipelines.registry import Listed

_BYTES_PER_MBIT = 1e6 / 8


class KnobView(View):
    """A named choice of an operator."""

    name: str
    """Unique within its operator."""
    values: list[KnobValue]
    """The choices."""
    ordered: bool
    """Whether neighbouring values are alike."""


class OperatorView(View):
    """One step of a pipeline."""

    name: str
    """Unique within the pipeline."""
    after: list[str]
    """Operators whose outputs it takes."""
    knobs: list[KnobView]
    """Its choices."""
    scaling: Scaling
    """How its latency answers to a share of a machine."""


class MissingView(View):
    """Something that a pipeline needs and this machine lacks."""

    name: str
    """What it is; of a pipeline that cannot be loaded, why."""
    install: str
    """How to get it; empty when there is no way to."""


class PipelineView(View):
    """A registered pipeline."""

    name: str
    """What a query calls it."""
    available: bool
    """Whether it can run here."""
    missing: list[MissingView]
    """Why not."""
    metric: str
    """What its score means."""
    unit: str
    """Unit of the score."""
    configurations: int
    """Size of its configuration space; 0: it cannot be loaded."""
    operators: list[OperatorView]
    """In topological order; none: it cannot be loaded."""


class PipelineList(View):
    """The registered pipelines."""

    items: list[PipelineView]
    """By name."""


class CalibrationView(View):
    """Speed factors measured on a tier's workers."""

    date: str
    """When, as YYYY-MM-DD."""
    share: float
    """Of a machine that the workers had."""
    speeds: dict[str, float]
    """Class of operators -> how many times as fast as the reference machine."""


class TierView(View):
    """A pool of like machines."""

    name: str
    """Unique within the infrastructure."""
    machines: int
    """How many there are now; of a dedicated tier, that each query has."""
    price_usd_per_hour: float
    """Of one whole machine."""
    speed_factor: float
    """How many times as fast as the reference machine."""
    dedicated: bool
    """Whether every query has machines of its own here."""
    emulated: bool
    """Whether the speed is put on by waiting."""
    call_s: float
    """Seconds that calling an instance there costs it, on the reference machine."""
    call_s_per_byte: float = 0.0
    """The same for each byte handed over."""
    calibration: CalibrationView | None = None
    """What was measured; none: nothing was."""


class LinkView(View):
    """A connection between two tiers."""

    between: tuple[str, str]
    """The two tiers."""
    bandwidth_bytes_per_s: float
    """Bytes per second."""
    delay_s: float
    """Seconds until the first byte arrives."""
    emulated: bool
    """Whether the time is put on by waiting."""


class MachinesBody(Input):
    """Machines that come or go."""

    machines: Annotated[dict[str, int | None], Field(min_length=1, max_length=1000)]
    """Shared tier -> how many it has from now on; none: as many as the infrastructure states."""


class LinkBody(Input):
    """A link as it is imitated."""

    between: Annotated[list[str], Field(min_length=2, max_length=2)]
    """The two tiers."""
    bandwidth_mbit_per_s: Annotated[float, Field(gt=0)]
    """Megabits per second."""
    delay_s: Annotated[float, Field(ge=0)] = 0.0
    """Seconds until the first byte arrives."""


class EmulationBody(Input):
    """What is imitated from now on, apart from what is planned for."""

    links: Annotated[list[LinkBody], Field(min_length=1, max_length=1000)]
    """Emulated links; those left out stay as they are."""


class InfrastructureView(View):
    """What the service plans for."""

    name: str
    """For people."""
    origin: str
    """Tier where requests arrive."""
    tiers: list[TierView]
    """From the device towards the cloud."""
    links: list[LinkView] = Field(default_factory=list)
    """Between the tiers."""


def pipeline_view(listed: Listed) -> PipelineView:
    """Give a pipeline as it is listed."""
    graph = None if listed.pipeline is None else listed.pipeline.graph
    return PipelineView(
        name=listed.name,
        available=not listed.missing,
        missing=[MissingView(name=need.name, install=need.install) for need in listed.missing],
        metric="" if graph is None else graph.metric,
        unit="" if graph is None else graph.unit,
        configurations=0 if graph is None else ConfigurationSpace(graph).size,
        operators=[] if graph is None else [_operator_view(spec) for spec in graph.operators],
    )


def _operator_view(operator: OperatorSpec) -> OperatorView:
    return OperatorView(
        name=operator.name,
        after=list(operator.after),
        knobs=[
            KnobView(name=k.name, values=list(k.values), ordered=bool(k.ordered))
            for k in operator.knobs
        ],
        scaling=operator.scaling,
    )


def to_links(body: EmulationBody) -> list[Link]:
    """Give the links of a body.

    Raises:
        InvalidInput: If one connects a tier to itself.
    """
    return [
        Link(
            between=(link.between[0], link.between[1]),
            bandwidth_bytes_per_s=link.bandwidth_mbit_per_s * _BYTES_PER_MBIT,
            delay_s=link.delay_s,
        )
        for link in body.links
    ]


def _calibration_view(tier: Tier) -> CalibrationView | None:
    found = tier.calibration
    if found is None:
        return None
    speeds = {name: tier.speed_of(name) for name in found.speeds}
    return CalibrationView(date=found.date, share=found.share, speeds=speeds)


def infrastructure_view(infrastructure: Infrastructure) -> InfrastructureView:
    """Give an infrastructure as the service shows it."""
    return InfrastructureView(
        name=infrastructure.name,
        origin=infrastructure.origin or infrastructure.tiers[0].name,
        tiers=[
            TierView(
                name=tier.name,
                machines=tier.machines,
                price_usd_per_hour=tier.price_usd_per_hour,
                speed_factor=tier.speed_factor,
                call_s=tier.call_s,
                call_s_per_byte=tier.call_s_per_byte,
                dedicated=tier.dedicated,
                emulated=tier.emulated,
                calibration=_calibration_view(tier),
            )
            for tier in infrastructure.tiers
        ],
        links=[
            LinkView(
                between=link.between,
                bandwidth_bytes_per_s=link.bandwidth_bytes_per_s,
                delay_s=link.delay_s,
                emulated=link.emulated,
            )
            for link in infrastructure.links
        ],
    )
