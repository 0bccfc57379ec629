from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from circinus.deploy.methods import DEFAULT, PUBLISHED, Method
from circinus.deploy.planning import planner_of, sampling_of, stopping_rule
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.execution.features import InputFeatures
from circinus.pipelines.io.presets import PRESETS
from circinus.pipelines.model.configuration import ConfigurationSpace
from circinus.pipelines.model.graph import PipelineGraph
from circinus.pipelines.model.plan import Plan
from circinus.pipelines.model.query import (
    SAMPLING,
    STOPPING,
    STRATEGIES,
    PlanningLimits,
    PlanningMethod,
    Query,
)
from circinus.pipelines.model.slo import Slo
from circinus.planner.models.history import QueryRecord
from circinus.planner.search.result import PlanningOutcome
from circinus.planner.strategy.in_order import random_search
from circinus.planner.strategy.protocol import SearchSetting, Strategy
from circinus.profiler.drawing import Drawing
from circinus.profiler.stopping import Betting
from tests.oracles.synthetic import SyntheticEvaluator, additive, chain

DRAWING = Drawing(order=np.arange(3), groups=np.array([0, 1, 1]))


def test_a_stopping_rule_that_nobody_knows_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"planning\.stopping must be among .*, got 'luck'"):
        stopping_rule("luck", DRAWING)


def test_an_order_of_inputs_that_nobody_knows_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"planning\.sampling must be among .*, got 'sorted'"):
        sampling_of("sorted")


def test_every_name_has_a_part_of_its_own() -> None:
    assert len({type(stopping_rule(name, DRAWING)) for name in STOPPING}) == len(STOPPING)
    assert len({sampling_of(name) for name in SAMPLING}) == len(SAMPLING)


def test_betting_is_told_the_groups_of_the_drawing() -> None:
    rule = stopping_rule("betting", DRAWING)
    assert isinstance(rule, Betting)
    assert rule.groups is DRAWING.groups


def _refused() -> InputFeatures:
    raise AssertionError("nobody needs features")


def _numbered(count: int = 20) -> InputFeatures:
    return InputFeatures(values=np.arange(float(count))[:, None], source="1 number")


def test_features_are_asked_for_only_where_strata_or_the_rule_need_them() -> None:
    planner_of(DEFAULT.planning).drawing(_refused, 20, seed=0)
    asked: list[str] = []

    def features() -> InputFeatures:
        asked.append("asked")
        return _numbered()

    betting = DEFAULT.planning.changed(strategy="random")
    grouped = planner_of(betting).drawing(features, 20, seed=0)
    strata = planner_of(PUBLISHED.planning).drawing(features, 20, seed=0)
    assert asked == ["asked", "asked"]
    assert grouped.groups is not None
    assert sorted(strata.order) == list(range(20))
    assert grouped.strata == strata.strata == "by 1 number"


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (np.arange(9.0)[:, None], "9 inputs are fewer than 10 strata"),
        (np.ones((20, 3)), "the inputs have no features that differ"),
        (np.ones((20, 0)), "the inputs have no features that differ"),
    ],
)
def test_a_random_order_in_place_of_strata_gives_its_reason(
    values: np.ndarray, reason: str
) -> None:
    features = InputFeatures(values=values, source="some features")
    drawing = planner_of(PUBLISHED.planning).drawing(lambda: features, len(values), seed=0)
    assert drawing.strata == f"none, in random order, as {reason}"
    assert sorted(drawing.order) == list(range(len(values)))
    betting = planner_of(DEFAULT.planning.changed(strategy="random"))
    assert betting.drawing(lambda: features, len(values), seed=0).strata == ""


@pytest.mark.parametrize(
    ("method", "remarks"),
    [
        (DEFAULT.planning, ()),
        (
            DEFAULT.planning.changed(strategy="exhaustive", sampling="stratified"),
            ("strata: by 1 number",),
        ),
    ],
)
def test_the_answer_has_a_remark_on_what_strata_are_made_of(
    method: PlanningMethod, remarks: tuple[str, ...]
) -> None:
    graph = chain(3, 3)
    seconds = additive([[0.01, 0.02, 0.03], [0.0, 0.01, 0.02]])
    evaluator = SyntheticEvaluator(graph, additive([[0.3, 0.4, 0.5], [0.1, 0.2, 0.4]]), seconds)
    query = Query(pipeline=graph.name, slo=Slo(accuracy=0.6, latency_s=0.2))
    planner = planner_of(method)
    count = evaluator.population
    drawing = planner.drawing(lambda: _numbered(count), count, seed=0)
    result = planner.search(query, PRESETS["one-tier"], evaluator, drawing)
    assert tuple(each for each in result.remarks if "strata" in each) == remarks


def test_equal_seeds_draw_equal_orders_and_unlike_seeds_unlike_ones() -> None:
    planner = planner_of(DEFAULT.planning)
    first, again, other = (planner.drawing(_refused, 50, seed).order for seed in (3, 3, 4))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy_plans(strategy: str) -> None:
    graph = chain(3, 3)
    seconds = additive([[0.01, 0.02, 0.03], [0.0, 0.01, 0.02]])
    accuracy = additive([[0.3, 0.4, 0.5], [0.1, 0.2, 0.4]])
    evaluator = SyntheticEvaluator(graph, accuracy, seconds)
    planner = planner_of(DEFAULT.planning.changed(strategy=strategy))
    drawing = planner.drawing(
        lambda: _numbered(evaluator.population), evaluator.population, seed=0
    )
    slo = Slo(accuracy=0.6, latency_s=0.2)
    query = Query(pipeline=graph.name, slo=slo, limits=PlanningLimits(profiling_s=60.0))
    result = planner.search(query, PRESETS["one-tier"], evaluator, drawing)
    assert result.outcome is PlanningOutcome.FEASIBLE
    truly = accuracy(ConfigurationSpace(graph).indices([_number(graph, result.plans[0])])[0])
    assert truly >= slo.accuracy


def _number(graph: PipelineGraph, plan: Plan) -> int:
    return ConfigurationSpace(graph).number(plan.configuration)


@pytest.mark.parametrize(("method", "count"), [(DEFAULT, 10), (PUBLISHED, 12)])
def test_as_published_planning_starts_from_all_earlier_queries_else_from_the_newest(
    method: Method, count: int
) -> None:
    slo = Slo(accuracy=0.5, latency_s=1.0)
    history = [
        QueryRecord(query=f"q{i}", fingerprint="f", slo=slo, configurations=()) for i in range(12)
    ]
    starts: list[list[str]] = []

    def strategy(setting: SearchSetting, rng: np.random.Generator) -> Strategy:
        starts.append([record.query for record in setting.history])
        return random_search(setting, rng)

    planner = planner_of(method.planning)
    planner = replace(planner, settings=replace(planner.settings, strategy=strategy))
    graph, flat = chain(2), additive([[0.1, 0.1]])
    query = Query(pipeline=graph.name, slo=slo)
    evaluator = SyntheticEvaluator(graph, flat, flat, population=5)
    drawing = planner.drawing(lambda: _numbered(5), 5, seed=0)
    planner.search(query, PRESETS["one-tier"], evaluator, drawing, history=history)
    assert starts == [[f"q{i}" for i in range(count)]]
