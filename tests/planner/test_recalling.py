"""Earlier queries' records, gathered, and what the product's own strategy makes of them."""

from dataclasses import replace

import pytest

from circinus.pipelines.io.presets import PRESETS
from circinus.pipelines.model.configuration import ConfigurationSpace
from circinus.pipelines.model.query import PlanningLimits, Query
from circinus.pipelines.model.slo import Slo
from circinus.planner.models.history import ConfigurationRecord, QueryRecord, recalled
from circinus.planner.search.loop import search
from circinus.planner.search.result import PlanningProgress, PlanningResult
from circinus.profiler.stopping import TTest
from tests.oracles.synthetic import SyntheticEvaluator, additive, chain

GRAPH = chain(5, 6)
SPACE = ConfigurationSpace(GRAPH)
SLO = Slo(accuracy=0.7, latency_s=0.2)
ACCURACY = additive([[0.1, 0.2, 0.3, 0.4, 0.5], [0.0, 0.05, 0.1, 0.2, 0.25, 0.3]])
SECONDS = additive([[0.01, 0.02, 0.03, 0.04, 0.05], [0.0, 0.01, 0.02, 0.03, 0.04, 0.05]])


def _configuration(
    number: int, inputs: int, accuracy: float, seconds: float
) -> ConfigurationRecord:
    return ConfigurationRecord(
        configuration=SPACE.configuration(number),
        inputs=inputs,
        accuracy=accuracy,
        deviation=0.1,
        operator_s=(seconds, 2 * seconds),
        operator_deviation_s=(0.1 * seconds, 0.4 * seconds),
        output_bytes=(10.0, 20.0),
        input_bytes=100.0,
    )


def _query(name: str, *configurations: ConfigurationRecord) -> QueryRecord:
    return QueryRecord(query=name, fingerprint="f", slo=SLO, configurations=configurations)


class _UntilFound:
    """An observer that ends a search with its first plan."""

    def __init__(self) -> None:
        self._found = False

    def progress(self, progress: PlanningProgress) -> None:
        self._found = self._found or progress.plans > 0

    def cancelled(self) -> bool:
        return self._found


def _planned(history: tuple[QueryRecord, ...], seed: int = 0) -> PlanningResult:
    query = Query(pipeline=GRAPH.name, slo=SLO, seed=seed, limits=PlanningLimits(profiling_s=30))
    evaluator = SyntheticEvaluator(GRAPH, ACCURACY, SECONDS)
    until = _UntilFound()
    return search(query, PRESETS["one-tier"], evaluator, TTest(), observer=until, history=history)


def test_nothing_is_recalled_of_no_history() -> None:
    assert recalled((), SPACE) == ()


def test_a_single_input_is_not_worth_recalling() -> None:
    assert recalled([_query("a", _configuration(3, 1, 1.0, 0.1))], SPACE) == ()


def test_means_are_weighted_by_inputs() -> None:
    history = [
        _query("a", _configuration(3, 10, 0.5, 0.1)),
        _query("b", _configuration(3, 30, 0.9, 0.3), _configuration(4, 60, 0.1, 0.1)),
    ]
    first, second = recalled(history, SPACE)
    assert [SPACE.number(one.configuration) for one in (first, second)] == [4, 3]
    assert second.inputs == 40
    assert second.accuracy == pytest.approx(0.8)
    assert second.operator_s == pytest.approx([0.25, 0.5])
    assert second.output_bytes == pytest.approx([10.0, 20.0])
    assert second.mean_work.input_bytes == pytest.approx([100.0])


def test_the_best_known_are_recalled_when_there_are_too_many() -> None:
    history = [_query("a", *(_configuration(n, n + 2, 0.5, 0.1) for n in range(20)))]
    found = [SPACE.number(one.configuration) for one in recalled(history, SPACE, most=3)]
    assert found == [19, 18, 17]


def test_a_search_with_history_measures_less_and_is_right() -> None:
    earlier = _planned((), seed=9)
    history = (_query("earlier", *earlier.configurations),)
    cold = [_planned((), seed) for seed in range(3)]
    warm = [_planned(history, seed) for seed in range(3)]
    assert sum(one.inputs for one in warm) < sum(one.inputs for one in cold)
    for one in warm:
        number = SPACE.number(one.plans[0].configuration)
        knobs = SPACE.indices([number])[0]
        assert ACCURACY(knobs) >= SLO.accuracy - 0.05


def test_misleading_history_does_not_make_a_plan_untrue() -> None:
    earlier = _planned((), seed=9)
    wrong = tuple(
        replace(one, accuracy=1.0 - one.accuracy, operator_s=tuple(s / 3 for s in one.operator_s))
        for one in earlier.configurations
    )
    result = _planned((_query("earlier", *wrong),))
    assert result.plans
    for plan in result.plans:
        knobs = SPACE.indices([SPACE.number(plan.configuration)])[0]
        assert ACCURACY(knobs) >= SLO.accuracy - 0.05
        assert plan.latency_s.value <= SLO.latency_s


def test_what_a_huge_space_did_not_draw_is_still_recalled() -> None:
    graph = chain(*[5] * 8)
    space = ConfigurationSpace(graph)
    best = space.size - 1
    weights = [[0.0, 0.05, 0.09, 0.11, 0.1225]] * 8
    evaluator = SyntheticEvaluator(
        graph, additive(weights), additive([[0.001] * 5] * 8), population=40
    )
    record = ConfigurationRecord(
        configuration=space.configuration(best),
        inputs=40,
        accuracy=0.99,
        deviation=0.1,
        operator_s=(0.001,) * 8,
        operator_deviation_s=(0.0,) * 8,
        output_bytes=(100.0,) * 8,
        input_bytes=1000.0,
    )
    query = Query(
        pipeline=graph.name,
        slo=Slo(accuracy=0.9, latency_s=1.0),
        limits=PlanningLimits(configurations=20),
    )
    history = (_query("earlier", record),)
    until = _UntilFound()
    found = search(query, PRESETS["one-tier"], evaluator, TTest(), observer=until, history=history)
    assert best in [space.number(plan.configuration) for plan in found.plans]
