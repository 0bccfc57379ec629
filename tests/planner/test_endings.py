"""Searches as published end at the response limit, or when nothing is left to measure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from circinus.deploy.methods import PUBLISHED
from circinus.deploy.planning import Planner, planner_of, to_the_end
from circinus.pipelines.clock import ManualClock
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.execution.features import InputFeatures
from circinus.pipelines.model.configuration import Configuration
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.profile import Profile
from circinus.pipelines.model.query import PlanningLimits, PlanningMethod, Query
from circinus.pipelines.model.slo import Slo
from circinus.pipelines.model.tiers import Tier
from circinus.planner.search.loop import SearchSettings
from circinus.planner.search.measuring import LatencyLooks
from circinus.planner.search.result import PlanningOutcome, PlanningResult
from circinus.planner.strategy.in_order import random_search
from tests.oracles.synthetic import SyntheticEvaluator, additive, chain

GRAPH = chain(4, 5)
ONE = Infrastructure(name="one", tiers=(Tier(name="t", price_usd_per_hour=3.6),))
ACCURACY = additive([[0.1, 0.2, 0.3, 0.4], [0.0, 0.1, 0.2, 0.25, 0.3]])
SECONDS = additive([[0.01, 0.02, 0.03, 0.04], [0.0, 0.01, 0.02, 0.03, 0.04]])
EAGER = SearchSettings(strategy=random_search, patience=1, minimum=1)
CMBO = PlanningMethod(strategy="cmbo", stopping="t_test", sampling="random")


@dataclass
class Taking:
    """An evaluator whose clock moves on by the seconds that it measures."""

    inner: SyntheticEvaluator
    clock: ManualClock

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)

    def measure(self, configuration: Configuration, inputs: int) -> Profile:
        return self.measure_each([(configuration, inputs)])[0]

    def measure_each(self, wanted: Sequence[tuple[Configuration, int]]) -> tuple[Profile, ...]:
        before = self.inner.spent_s
        profiles = self.inner.measure_each(wanted)
        self.clock.sleep(self.inner.spent_s - before)
        return profiles


def _planned(
    planner: Planner,
    slo: Slo,
    response_s: float | None = None,
    fails: Callable[[int], bool] = lambda number: False,
) -> tuple[PlanningResult, SyntheticEvaluator, ManualClock]:
    limits = PlanningLimits(profiling_s=1e6, response_s=response_s)
    query = Query(pipeline=GRAPH.name, slo=slo, limits=limits)
    clock, evaluator = ManualClock(), SyntheticEvaluator(GRAPH, ACCURACY, SECONDS, fails=fails)
    drawing = planner.drawing(lambda: InputFeatures(values=np.zeros((60, 1)), source="one"), 60, 0)
    taking = Taking(evaluator, clock)
    result = planner.search(query, ONE, taking, drawing, clock=clock)  # type: ignore[arg-type]  # by __getattr__
    return result, evaluator, clock


SLOS = [
    (Slo(accuracy=0.2, latency_s=0.2), PlanningOutcome.FEASIBLE),  # most do
    (Slo(accuracy=0.99, latency_s=0.2), PlanningOutcome.INFEASIBLE),  # none is so accurate
    (Slo(accuracy=0.2, latency_s=0.001), PlanningOutcome.INFEASIBLE),  # none so fast
]


@pytest.mark.parametrize(("slo", "outcome"), SLOS)
def test_to_the_end_everything_is_measured(slo: Slo, outcome: PlanningOutcome) -> None:
    rule = planner_of(CMBO).stopping
    settings = to_the_end(EAGER)
    result, evaluator, _ = _planned(Planner(settings=settings, stopping=rule), slo)
    assert result.outcome is outcome
    assert set(evaluator.measured) == set(range(20))
    assert "all 20 configurations measured" in result.stopped_because
    # An infeasible latency ends a measurement at the first look, the t-test from 50 inputs on.
    assert min(evaluator.measured.values()) == (10 if slo.latency_s < 0.01 else 50)


def test_as_published_everything_is_measured() -> None:
    result, evaluator, _ = _planned(planner_of(CMBO), Slo(accuracy=0.2, latency_s=0.2))
    assert "all 20 configurations measured" in result.stopped_because
    assert set(evaluator.measured) == set(range(20))
    assert min(evaluator.measured.values()) >= 50


def test_to_the_end_failures_of_all_do_not_end_a_search() -> None:
    slo = Slo(accuracy=0.2, latency_s=0.2)
    for settings, measured in ((EAGER, 1), (to_the_end(EAGER), 20)):
        _, evaluator, _ = _planned(Planner(settings=settings), slo, fails=lambda number: True)
        assert len(evaluator.measured) == measured


def test_to_the_end_a_search_uses_its_response_time() -> None:
    slo, response_s = Slo(accuracy=0.2, latency_s=0.2), 20.0
    planner = Planner(settings=to_the_end(EAGER), stopping=planner_of(CMBO).stopping)
    result, evaluator, clock = _planned(planner, slo, response_s)
    assert result.stopped_because.startswith("limit response_s reached")
    assert result.plans
    assert 3 < len(evaluator.measured) < 20
    assert response_s <= clock.now() <= response_s + 0.1  # an input takes 0.08 s at most


def test_other_searches_end_once_no_cheaper_plan_turns_up() -> None:
    planner = Planner(settings=EAGER, stopping=planner_of(CMBO).stopping)
    result, evaluator, _ = _planned(planner, Slo(accuracy=0.2, latency_s=0.2))
    assert "no cheaper plan in 1 more configurations" in result.stopped_because
    assert len(evaluator.measured) < 20


def test_the_published_method_has_no_ends_of_its_own() -> None:
    settings = planner_of(PUBLISHED.planning).settings
    assert settings == to_the_end(settings)
    ours = planner_of(PlanningMethod()).settings
    assert (ours.patience, ours.minimum, ours.infeasible_below) == (25, 30, 1e-3)
    assert settings.looks == ours.looks == LatencyLooks()


@pytest.mark.parametrize("name", ["patience", "minimum"])
def test_fewer_than_one_configuration_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match=f"search.{name} must be >= 1, got 0"):
        SearchSettings(**{name: 0})  # type: ignore[arg-type]  # which field varies
