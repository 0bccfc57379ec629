"""Plans of pipelines that answer differently each time hold what is shown of them.

The truth is the expected score over draws. Drawn as in `FlippingEvaluator`: 10 % of the inputs of
a configuration flip, and what is asked for lies between the truth of the fourth best and the best.
`CIRCINUS_TEST_PLANS` is how many plans shown as met the slow test counts, 30 when unset.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pytest

from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.query import PlanningLimits, Query
from circinus.pipelines.model.slo import Slo, SloState
from circinus.pipelines.model.tiers import Tier
from circinus.planner.search.loop import search
from tests.contracts.test_drawing_evaluator import over_a_trace, over_operators
from tests.oracles.drawn import FlippingEvaluator

PLANS = int(os.environ.get("CIRCINUS_TEST_PLANS", "30"))
ROUNDING = 1e-9
MACHINES = Infrastructure(name="one", tiers=(Tier(name="t", price_usd_per_hour=3.6),))


class Shown(NamedTuple):
    """A plan that was shown as met."""

    accuracy: float  # asked for
    truth: float
    value: float  # shown
    low: float  # end of the interval shown
    inputs: int  # draws counted
    population: int


def shown(seed: int) -> list[Shown]:
    """Return the plans of one drawn query that were shown as met."""
    rng = np.random.Generator(np.random.PCG64([seed, 7]))
    evaluator = FlippingEvaluator(population=int(rng.choice([40, 60, 80])), seed=seed)
    truth = np.sort(evaluator.truth)
    query = Query(
        pipeline=evaluator.graph.name,
        slo=Slo(accuracy=float(rng.uniform(truth[-4], truth[-1])), latency_s=10.0),
        limits=PlanningLimits(profiling_s=20.0),
        seed=seed,
    )
    return [
        Shown(
            accuracy=query.slo.accuracy,
            truth=float(evaluator.truth[evaluator.space.number(plan.configuration)]),
            value=plan.accuracy.value,
            low=plan.accuracy.low,
            inputs=plan.accuracy.inputs,
            population=evaluator.population,
        )
        for plan in search(query, MACHINES, evaluator).plans
        if plan.states(query.slo)["accuracy"] is SloState.MET
    ]


def untrue(plans: int, seeds: Iterator[int]) -> tuple[int, int]:
    """Return how many plans were shown as met, at least so many, and how many were not."""
    counted: list[Shown] = []
    while len(counted) < plans:
        counted += shown(next(seeds))
    return len(counted), sum(plan.truth < plan.accuracy - ROUNDING for plan in counted)


def test_all_inputs_measured_once_are_not_the_expected_score() -> None:
    # Of 40 inputs, of which 4 flip, the mean of single scores is off by 0.025 as a deviation.
    plans = [plan for seed in range(100, 103) for plan in shown(seed)]
    assert plans
    assert all(plan.low < plan.value for plan in plans)
    assert all(
        plan.inputs > plan.population for plan in plans if plan.value < plan.accuracy + 0.03
    )


def test_plans_shown_as_met_hold() -> None:
    # Were one in a hundred untrue, two of five or six were so in one of 700 drawings.
    counted, wrong = untrue(5, itertools.count(1))
    assert counted >= 5
    assert wrong <= 1


@pytest.mark.slow
def test_of_plans_shown_as_met_at_most_one_in_a_hundred_is_not() -> None:
    counted, wrong = untrue(PLANS, itertools.count(10_000))
    assert wrong <= counted / 100


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
