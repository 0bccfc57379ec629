"""Rent or call, from what was measured of a reader with a model of its own and a hosted one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf

import numpy as np
import pytest

from circinus.pipelines.model.configuration import Configuration
from circinus.pipelines.model.endpoints import CallPrice, Endpoint, Usage
from circinus.pipelines.model.graph import PipelineGraph
from circinus.pipelines.model.infrastructure import Infrastructure, Link
from circinus.pipelines.model.operators import Knob, OperatorSpec
from circinus.pipelines.model.plan import Plan
from circinus.pipelines.model.profile import Profile
from circinus.pipelines.model.query import Query
from circinus.pipelines.model.slo import Slo
from circinus.pipelines.model.tiers import Tier
from circinus.planner.answers.break_even import break_even
from circinus.planner.answers.known import Known, answer, every_plan
from circinus.planner.strategy.in_order import exhaustive_search
from circinus.profiler.stopping import TTest

INPUTS = 60
GRAPH = PipelineGraph(
    name="reading",
    operators=(
        OperatorSpec(
            name="reader", knobs=(Knob(name="model", values=("own", "small")),), calls=("small",)
        ),
    ),
)
QUERY = Query(pipeline="reading", slo=Slo(accuracy=0.5, latency_s=0.5))


class Reading:
    """What was measured, and what machines and tokens cost."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.own_s = rng.uniform(0.05, 0.2)
        # dear enough that some machines pay off within the rates that are asked about
        price = rng.uniform(0.5, 4.0)
        self.usd = price * rng.uniform(1.0, 4.0) * self.own_s / 3600
        self.infrastructure = Infrastructure(
            name="lab",
            tiers=(
                Tier(name="cloud", machines=40, price_usd_per_hour=price),
                Tier(
                    name="api", endpoints=(Endpoint(name="small", price=CallPrice(call_usd=1.0)),)
                ),
            ),
            links=(Link(between=("cloud", "api"), bandwidth_bytes_per_s=1e9),),
        )
        spread = rng.uniform(0.8, 1.2, INPUTS)
        self.known = Known(
            graph=GRAPH,
            profiles=[
                self._profile("own", self.own_s, None),
                self._profile("small", 0.1, self.usd * spread),
            ],
            population=INPUTS,
            trusted={},
        )

    def _profile(self, model: str, seconds: float, usd: np.ndarray | None) -> Profile:
        used = None
        if usd is not None:
            used = np.zeros((1, len(Usage()), INPUTS))
            used[0, 0], used[0, 4] = 1.0, usd
        return Profile(
            configuration=Configuration((("reader", "model", model),)),
            inputs=np.arange(INPUTS),
            score=0.9 + 0.05 * np.where(np.arange(INPUTS) % 2, 1, -1),
            operator_s=np.full((1, INPUTS), seconds),
            output_bytes=np.full((1, INPUTS), 100.0),
            input_bytes=np.full(INPUTS, 100.0),
            used=used,
        )

    def plans(self, rate: float) -> Sequence[Plan]:
        query = replace(QUERY, request_rate_per_s=rate)
        return every_plan(query, self.infrastructure, self.known, exhaustive_search, TTest())


def least(plans: Sequence[Plan], *, calls: bool) -> float:
    return min((p.cost_usd_per_hour for p in plans if (p.calls is not None) is calls), default=inf)


@pytest.mark.parametrize("seed", range(10))
def test_the_rate_is_that_of_machines_over_calls_of_an_hour(seed: int) -> None:
    reading = Reading(seed)
    low, high = 0.05, 40.0
    found = break_even(reading.plans, low, high)
    mean_usd = float(np.mean(reading.known.profiles[1].used[0, 4]))  # type: ignore[index]  # it called
    scanned = {rate: reading.plans(rate) for rate in np.geomspace(low, high, 25).tolist()}
    wins = [r for r, p in scanned.items() if least(p, calls=False) <= least(p, calls=True)]
    if found.rate is None:
        assert not wins
        return
    assert found.renting is not None
    closed_form = found.renting.cost_usd_per_hour / (3600 * mean_usd)
    assert found.rate == pytest.approx(closed_form, rel=1e-6)
    assert found.rate <= min(wins, default=inf) * (1 + 1e-5)
    assert found.rate_low is not None
    assert found.rate_low <= found.rate
    assert found.rate_high is None or found.rate_high >= found.rate
    below = reading.plans(found.rate * 0.999)
    assert least(below, calls=True) < least(below, calls=False)


def test_some_of_the_drawn_price_tables_change_and_their_answers_change_with_them() -> None:
    changed = 0
    for seed in range(10):
        reading = Reading(seed)
        found = break_even(reading.plans, 0.05, 40.0)
        if found.rate is None:
            continue
        changed += 1
        for rate, calls in ((found.rate * 0.99, True), (found.rate * 1.000001, False)):
            query = replace(QUERY, request_rate_per_s=rate)
            best = answer(
                query, reading.infrastructure, reading.known, exhaustive_search, TTest()
            ).plans[0]
            assert (best.calls is not None) is calls
    assert changed >= 5
