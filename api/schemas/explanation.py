"""Why a plan is what it is, and what would be if."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from api.schemas.base import Input, View
from api.schemas.planning import PlanningView, planned_by_default
from api.schemas.plans import PlanView
from api.schemas.progress import ShortfallView
from pipelines.dataset import LARGEST_DATASET
from pipelines.operators import KnobValue
from planner.explaining import Explanation

Change = Annotated[str, Field(max_length=40)]
Changes = Annotated[dict[str, Change], Field(max_length=1000)]


class OperatorPartView(View):
    """What one operator contributes."""

    operator: str
    """Its name."""
    tier: str
    """Where it runs."""
    share: float
    """Of one machine there."""
    knobs: dict[str, KnobValue]
    """Its settings."""
    seconds: float
    """Mean seconds there at that share, calls included."""
    transfer_s: float
    """Mean seconds until its data has arrived from other tiers."""
    cost_usd_per_hour: float
    """Its part of the price of its slices, by seconds."""


class AlternativeView(View):
    """The plan with one operator elsewhere, all else where it is."""

    operator: str
    """Which one is moved."""
    tier: str
    """Where to."""
    possible: bool
    """Whether the SLOs would hold."""
    cost_usd_per_hour: float | None
    """Of its cheapest allocation; none: not possible."""
    because: str
    """What rules it out, or what it would change."""


class RuledOutView(View):
    """Configurations that are no plan, by what rules them out."""

    by: str
    """`accuracy`, `latency`, `cost`, `failure`, `undecided`, `restriction` or `unmeasured`."""
    configurations: int
    """How many."""
    nearest: str
    """What the nearest of them gives."""


class ExplanationView(View):
    """Why a plan is what it is, from measurements that are there."""

    plan: PlanView
    """The plan."""
    operators: list[OperatorPartView]
    """In topological order."""
    alternatives: list[AlternativeView]
    """Each operator on each other tier."""
    ruled_out: list[RuledOutView]
    """What is no plan and why."""
    planning: PlanningView = Field(default_factory=planned_by_default)
    """How the query was planned."""


class ReplanData(Input):
    """Examples of the pipeline to profile on."""

    examples: Annotated[int, Field(ge=1, le=LARGEST_DATASET)]
    """Number of examples."""
    seed: Annotated[int, Field(ge=0, le=2**63 - 1)] = 0
    """Of the examples."""


class WhatIfBody(Input):
    """What would be otherwise: `0.8x` times, `+2` or `-2` more or fewer, `5` exactly."""

    accuracy: Change = ""
    """The accuracy SLO."""
    latency: Change = ""
    """The latency SLO, seconds."""
    cost: Change = ""
    """The cost SLO, US dollars per hour."""
    price: Changes = Field(default_factory=dict)
    """Tier -> its price, US dollars per hour."""
    machines: Changes = Field(default_factory=dict)
    """Tier -> number of its machines."""
    speed: Changes = Field(default_factory=dict)
    """Tier -> its speed factor."""
    bandwidth: Changes = Field(default_factory=dict)
    """`tier-tier` -> bandwidth of their link, Mbit/s."""


class ReplanBody(Input):
    """Other objectives or other data: `0.8x` times, `+0.1` or `-2` more or less, `5` exactly."""

    accuracy: Change = ""
    """The accuracy SLO."""
    latency: Change = ""
    """The latency SLO, seconds."""
    cost: Change = ""
    """The cost SLO, US dollars per hour."""
    data: ReplanData | None = None
    """Examples to profile on from now on; left out: the same."""


class WhatIfView(View):
    """What a change of circumstances would do, from measurements that are there."""

    words: str
    """What changes for the cheapest plan."""
    before: list[PlanView]
    """Plans as things are, cheapest first."""
    after: list[PlanView]
    """Plans as they would be, cheapest first."""
    shortfall: ShortfallView | None
    """Why there would be no plan; none: there would be one."""


def explanation_view(
    explanation: Explanation, plan: PlanView, planning: PlanningView
) -> ExplanationView:
    """Give an explanation as the service shows it."""
    return ExplanationView(
        plan=plan,
        operators=[
            OperatorPartView(
                operator=part.operator,
                tier=part.tier,
                share=part.share,
                knobs=dict(part.knobs),
                seconds=part.seconds,
                transfer_s=part.transfer_s,
                cost_usd_per_hour=part.cost_usd_per_hour,
            )
            for part in explanation.operators
        ],
        alternatives=[
            AlternativeView(
                operator=other.operator,
                tier=other.tier,
                possible=other.possible,
                cost_usd_per_hour=other.cost_usd_per_hour,
                because=other.because,
            )
            for other in explanation.alternatives
        ],
        ruled_out=[
            RuledOutView(by=out.by, configurations=out.configurations, nearest=out.nearest)
            for out in explanation.ruled_out
        ],
        planning=planning,
    )
