"""Why a plan is what it is, and what would be if."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from circinus.api.schemas.base import WHOLE, Input, View
from circinus.api.schemas.planning import PlanningView, planned_by_default
from circinus.api.schemas.plans import PlanView
from circinus.api.schemas.progress import ShortfallView
from circinus.api.schemas.query import Seed
from circinus.pipelines.io.datasets import LARGEST_DATASET
from circinus.planner.answers.explaining import Alternative, OperatorPart, RuledOut

NUMBER = r"[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]{1,2})?"
"""Of at most 40 characters: finite."""
Change = Annotated[
    str, Field(max_length=40, json_schema_extra={"pattern": rf"^([+-]?{NUMBER}|{NUMBER}x)?$"})
]
Changes = Annotated[dict[str, Change], Field(max_length=1000)]


class ExplanationView(View):
    """Why a plan is what it is, from measurements that are there."""

    plan: PlanView = Field(description="The plan.")
    operators: list[OperatorPart] = Field(description="In topological order.")
    alternatives: list[Alternative] = Field(description="Each operator on each other tier.")
    ruled_out: list[RuledOut] = Field(description="What is no plan and why.")
    planning: PlanningView = Field(default_factory=planned_by_default)
    """How the query was planned."""


class ReplanData(Input):
    """Examples of the pipeline to profile on."""

    examples: Annotated[int, Field(ge=1, le=LARGEST_DATASET), WHOLE]
    """Number of examples."""
    seed: Seed = Field(default=0, description="Of the examples.")


class ObjectiveChange(Input):
    """SLOs that would be otherwise: `0.8x` times, `+2` or `-2` more or less, `5` exactly."""

    accuracy: Change = Field(default="", description="The accuracy SLO.")
    latency: Change = Field(default="", description="The latency SLO, seconds.")
    cost: Change = Field(default="", description="The cost SLO, US dollars per hour.")
    cost_per_1000: Change = ""
    """The SLO on the cost of requests, US dollars for 1,000 of them."""


class WhatIfBody(ObjectiveChange):
    """What would be otherwise: `0.8x` times, `+2` or `-2` more or fewer, `5` exactly."""

    price: Changes = Field(default_factory=dict)
    """Tier -> its price, US dollars per hour."""
    machines: Changes = Field(default_factory=dict, description="Tier -> number of its machines.")
    speed: Changes = Field(default_factory=dict, description="Tier -> its speed factor.")
    bandwidth: Changes = Field(default_factory=dict)
    """`tier-tier` -> bandwidth of their link, Mbit/s."""
    rate: Annotated[
        str, Field(max_length=80, json_schema_extra={"pattern": rf"^({NUMBER}:{NUMBER})?$"})
    ] = ""
    """`LOW:HIGH` requests per second: at which rate between them machines become cheaper than
    calls; empty: do not search for it."""


class BreakEvenView(View):
    """Between which request rates calls are cheapest, and machines."""

    words: str = Field(description="The same as a sentence.")
    low: float = Field(description="Least rate that was asked about, requests per second.")
    high: float = Field(description="Largest rate.")
    rate: float | None
    """Least rate at which no plan that calls is cheaper than one on machines; none: there is
    none."""
    rate_low: float | None
    """The same were calls as dear and requests as quick as their intervals allow; none: not
    between these rates."""
    rate_high: float | None = Field(description="The same were calls as cheap and slow.")
    for_good: float | None
    """Rate from which on machines are cheapest up to the largest; none: there they are not."""
    calling: PlanView | None = None
    """Cheapest plan that calls at the rate, else at the least; none: there is none."""
    renting: PlanView | None = None
    """Cheapest that calls nothing at the rate, else at the largest; none: there is none."""


class ReplanBody(ObjectiveChange):
    """Other objectives or other data: `0.8x` times, `+0.1` or `-2` more or less, `5` exactly."""

    data: ReplanData | None = None
    """Examples to profile on from now on; left out: the same."""


class WhatIfView(View):
    """What a change of circumstances would do, from measurements that are there."""

    words: str = Field(description="What changes for the cheapest plan.")
    before: list[PlanView] = Field(description="Plans as things are, cheapest first.")
    after: list[PlanView] = Field(description="Plans as they would be, cheapest first.")
    shortfall: ShortfallView | None
    """Why there would be no plan; none: there would be one."""
    break_even: BreakEvenView | None = None
    """Where machines become cheaper than calls; none: it was not requested."""
