"""What requests to a plan that calls say of the world: an endpoint has no speed of ours."""

from __future__ import annotations

import numpy as np
import pytest

from circinus.pipelines.model.query import PlanningLimits, Query
from circinus.pipelines.model.slo import Slo
from circinus.planner.answers.drift import ObservedRequests, as_observed, parts_of
from circinus.planner.answers.known import Known, answer
from circinus.planner.strategy.in_order import exhaustive_search
from circinus.profiler.stopping import TTest
from tests.oracles.called_problems import GRAPH, SPACE, CallingEvaluator, infrastructure


def test_a_slow_endpoint_makes_no_tier_slower_and_a_slow_machine_its_own() -> None:
    where = infrastructure(np.random.default_rng(2))
    evaluator = CallingEvaluator(2, where)
    profiles = [evaluator.measure(SPACE.configuration(n), 20) for n in range(SPACE.size)]
    slo = Slo(accuracy=0.0, latency_s=1000.0)
    query = Query(pipeline="ask", slo=slo, limits=PlanningLimits(profiling_s=1e6))
    known = Known(graph=GRAPH, profiles=profiles, population=20, trusted={})
    plans = answer(query, where, known, exhaustive_search, TTest()).plans
    plan = next(p for p in plans if p.configuration.of("read")["model"] == "small")
    rented = plan.deployment.placement["search"]

    parts = parts_of(GRAPH, where, evaluator.work(SPACE.number(plan.configuration)), plan)
    twice = {tier: 2 * seconds for tier, seconds in parts.tier_s.items()}
    seen = ObservedRequests(
        latency_s=np.full(30, 2 * parts.latency_s),
        tier_s=twice,
        moved_s=parts.moved_s,
        scores=np.zeros(0),
    )
    found = as_observed(where, plan, parts, seen)

    assert found.tier("near") == where.tier("near")
    slower = where.tier(rented).speed_factor / 2
    assert found.tier(rented).speed_factor == pytest.approx(slower)
