from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.io.presets import PRESETS
from circinus.pipelines.model.configuration import Configuration, ConfigurationSpace
from circinus.pipelines.model.latency import Work
from circinus.pipelines.model.query import PlanningLimits, Query
from circinus.pipelines.model.slo import Slo
from circinus.planner.models.history import ConfigurationRecord, QueryRecord, recalled
from circinus.planner.search.loop import search
from circinus.planner.search.result import PlanningProgress, PlanningResult
from circinus.planner.strategy.cmbo import log_chance
from circinus.planner.strategy.surrogate import Posterior
from circinus.profiler.stopping import TTest
from tests.oracles.synthetic import SyntheticEvaluator, additive, chain

_CONFIGURATION = Configuration((("a", "k", 1),))


def _record(**more: object) -> ConfigurationRecord:
    values: dict[str, object] = {
        "configuration": _CONFIGURATION,
        "inputs": 2,
        "accuracy": 0.5,
        "deviation": 0.1,
        "operator_s": (0.1,),
        "operator_deviation_s": (0.01,),
        "output_bytes": (8.0,),
        "input_bytes": 4.0,
    }
    return ConfigurationRecord(**(values | more))  # type: ignore[arg-type]  # what the test varies


def _query(name: str, fingerprint: str = "p1") -> QueryRecord:
    slo = Slo(accuracy=0.5, latency_s=1.0)
    return QueryRecord(query=name, fingerprint=fingerprint, slo=slo, configurations=(_record(),))


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("inputs", 0, "record.inputs must be >= 1, got 0"),
        ("accuracy", 1.1, r"record.accuracy must be in \[0, 1\], got 1.1"),
        ("accuracy", float("nan"), r"record.accuracy must be in \[0, 1\], got nan"),
        ("deviation", -0.1, "record.deviation must be finite and >= 0, got -0.1"),
        ("input_bytes", -1.0, "record.input_bytes must be finite and >= 0, got -1"),
        ("operator_s", (float("nan"),), "record.operator_s must be finite and >= 0, got nan"),
        ("operator_s", (), "record.operator_s must have 0 figures, one per operator, got 0"),
        ("output_bytes", (1.0, 2.0), "record.output_bytes must have 1 figures"),
        ("operator_deviation_s", (), "record.operator_deviation_s must have 1 figures"),
    ],
)
def test_a_figure_that_cannot_be_is_refused(field: str, value: object, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        _record(**{field: value})


def test_a_record_without_name_or_fingerprint_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"record\.query must not be empty"):
        _query("")
    with pytest.raises(InvalidInput, match=r"record\.fingerprint must not be empty"):
        _query("q", fingerprint="")


def test_a_record_holds_means_and_deviations() -> None:
    work = Work(
        operator_s=np.array([[1.0, 3.0], [2.0, 2.0]]),
        output_bytes=np.array([[10.0, 30.0], [5.0, 5.0]]),
        input_bytes=np.array([100.0, 200.0]),
    )
    record = ConfigurationRecord.of(_CONFIGURATION, np.array([0.0, 1.0]), work)
    assert record.inputs == 2
    assert record.accuracy == 0.5
    assert record.deviation == pytest.approx(0.5**0.5)
    assert record.operator_s == (2.0, 2.0)
    assert list(record.operator_deviation_s) == [pytest.approx(2**0.5), 0.0]
    assert record.output_bytes == (20.0, 5.0)
    assert record.input_bytes == 150.0
    assert record.mean_work.operator_s.tolist() == [[2.0], [2.0]]


def test_one_input_has_no_deviation() -> None:
    one = Work(
        operator_s=np.array([[1.0]]), output_bytes=np.array([[1.0]]), input_bytes=np.array([1.0])
    )
    record = ConfigurationRecord.of(_CONFIGURATION, np.array([1.0]), one)
    assert record.deviation == 0.0
    assert record.operator_deviation_s == (0.0,)


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


def _recalling_query(name: str, *configurations: ConfigurationRecord) -> QueryRecord:
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
    assert recalled([_recalling_query("a", _configuration(3, 1, 1.0, 0.1))], SPACE) == ()


def test_means_are_weighted_by_inputs() -> None:
    history = [
        _recalling_query("a", _configuration(3, 10, 0.5, 0.1)),
        _recalling_query("b", _configuration(3, 30, 0.9, 0.3), _configuration(4, 60, 0.1, 0.1)),
    ]
    first, second = recalled(history, SPACE)
    assert [SPACE.number(one.configuration) for one in (first, second)] == [4, 3]
    assert second.inputs == 40
    assert second.accuracy == pytest.approx(0.8)
    assert second.operator_s == pytest.approx([0.25, 0.5])
    assert second.output_bytes == pytest.approx([10.0, 20.0])
    assert second.mean_work.input_bytes == pytest.approx([100.0])


def test_the_best_known_are_recalled_when_there_are_too_many() -> None:
    history = [_recalling_query("a", *(_configuration(n, n + 2, 0.5, 0.1) for n in range(20)))]
    found = [SPACE.number(one.configuration) for one in recalled(history, SPACE, most=3)]
    assert found == [19, 18, 17]


def test_a_search_with_history_measures_less_and_is_right() -> None:
    earlier = _planned((), seed=9)
    history = (_recalling_query("earlier", *earlier.configurations),)
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
    result = _planned((_recalling_query("earlier", *wrong),))
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
    history = (_recalling_query("earlier", record),)
    until = _UntilFound()
    found = search(query, PRESETS["one-tier"], evaluator, TTest(), observer=until, history=history)
    assert best in [space.number(plan.configuration) for plan in found.plans]


_ACCURACY = Posterior(mean=np.array([0.7, 0.9]), deviation=np.array([0.1, 0.05]))
_LATENCY = Posterior(mean=np.log([0.5, 2.0]), deviation=np.array([0.3, 0.2]))


def test_the_log_utility_equals_the_naive_product() -> None:
    chance = log_chance(_ACCURACY, _LATENCY, Slo(accuracy=0.8, latency_s=1.0))
    cost = np.array([0.1, 3.0])
    naive = (
        norm.sf(0.8, _ACCURACY.mean, _ACCURACY.deviation)
        * norm.cdf(0.0, _LATENCY.mean, _LATENCY.deviation)
        / cost
    )
    np.testing.assert_allclose(np.exp(chance - np.log(cost)), naive, rtol=1e-12)


def test_hopeless_candidates_still_differ() -> None:
    far = Posterior(mean=np.array([0.1, 0.2]), deviation=np.full(2, 0.01))
    logs = far.log_at_least(0.9)  # both probabilities are 0 in floating point
    assert np.isfinite(logs).all()
    assert logs[1] > logs[0]
