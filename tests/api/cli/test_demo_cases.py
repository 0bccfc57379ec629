"""What the demo asks for is sound, whatever a machine then makes of it."""

from __future__ import annotations

import pytest

from circinus.api.demo.cases import CASES, CONTESTED, THINNED, DemoCase, demo_infrastructure
from circinus.api.phases import QueryPhase
from circinus.api.schemas.query import to_query
from circinus.pipelines.model.query import fitted
from circinus.pipelines.registry import load_pipeline


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_query_of_the_demo_fits_its_pipeline_and_tiers(case: DemoCase) -> None:
    query = to_query(case.request)
    fitted(query, load_pipeline(query.pipeline).graph, demo_infrastructure())  # raises what is not


def test_nothing_of_the_demo_costs_nothing_and_faster_tiers_cost_more() -> None:
    tiers = demo_infrastructure().tiers
    assert min(tier.price_usd_per_hour for tier in tiers) > 0
    by_speed = sorted(tiers, key=lambda tier: tier.speed_factor)
    assert by_speed == sorted(tiers, key=lambda tier: tier.price_usd_per_hour)


def test_the_edge_alone_is_cheap_enough_for_who_asks_for_it() -> None:
    """The least share of a machine is a twentieth."""
    price = {tier.name: tier.price_usd_per_hour for tier in demo_infrastructure().tiers}
    bounds = [case.slo.cost_usd_per_hour for case in CASES if case.slo.cost_usd_per_hour]
    assert len(bounds) == 1
    assert all(price["cloud"] * 0.05 > bound >= price[CONTESTED] * 0.5 for bound in bounds)


def test_what_changes_can_be_changed() -> None:
    infrastructure = demo_infrastructure()
    assert not infrastructure.tier(CONTESTED).dedicated
    (link,) = (link for link in infrastructure.links if set(link.between) == set(THINNED))
    assert link.emulated


def test_all_but_one_query_of_the_demo_must_serve() -> None:
    ends = [case.ends for case in CASES]
    assert ends.count(QueryPhase.SERVING) == 3
    assert ends.count(QueryPhase.INFEASIBLE) == 1
