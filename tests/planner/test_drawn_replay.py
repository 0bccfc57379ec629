"""A search over a trace of draws finds what one over the operators finds."""

from __future__ import annotations

from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.query import PlanningLimits, Query
from circinus.pipelines.model.slo import Slo
from circinus.pipelines.model.tiers import Tier
from circinus.planner.search.loop import search
from tests.contracts.test_drawing_evaluator import over_a_trace, over_operators

ONE = Infrastructure(name="one", tiers=(Tier(name="t", price_usd_per_hour=3.6),))


def test_a_search_over_a_trace_of_draws_finds_and_pays_what_one_over_operators_does() -> None:
    query = Query(
        pipeline="flipping",
        slo=Slo(accuracy=0.2, latency_s=10.0),
        limits=PlanningLimits(profiling_s=1000.0),
    )
    real, replayed = search(query, ONE, over_operators()), search(query, ONE, over_a_trace())
    assert real.plans
    assert [plan.configuration for plan in real.plans] == [
        plan.configuration for plan in replayed.plans
    ]
    assert real.inputs == replayed.inputs > 5  # more than there are inputs: drawn again
