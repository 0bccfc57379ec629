"""Selection and votes of earlier queries against brute force, their models one by one."""

from collections.abc import Sequence

import numpy as np
import pytest
from scipy.stats import norm

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.configuration import ConfigurationSpace, IndexArray
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.profile import FloatArray
from circinus.pipelines.model.query import Query
from circinus.pipelines.model.slo import Slo
from circinus.pipelines.model.tiers import Tier
from circinus.planner.models.history import ConfigurationRecord, QueryRecord
from circinus.planner.search.loop import SearchSettings, search
from circinus.planner.search.result import PlanningResult
from circinus.planner.strategy.cmbo import Cmbo, CmboSettings
from circinus.planner.strategy.earlier_models import FEWEST, MOST, EarlierModels, earlier_models
from circinus.planner.strategy.protocol import SearchSetting
from circinus.planner.strategy.space import encode
from circinus.planner.strategy.surrogate import Posterior, SurrogateSettings, alike, fit
from circinus.planner.strategy.warm_start import FEWEST_GAPS, WarmStart
from circinus.profiler.stopping import TTest
from tests.oracles.synthetic import Formula, SyntheticEvaluator, additive, chain

WARM_START_SLO = Slo(accuracy=0.7, latency_s=0.1)
FAST, SLOW = np.log(0.01), np.log(1.0)
ALL = np.arange(3)


class Sure:
    """Models that are sure of the values of all candidates. A `Voters`."""

    def __init__(self, accuracy: FloatArray, log_latency: FloatArray, doubts: FloatArray) -> None:
        self._mean, self.doubts = np.stack([accuracy, log_latency], axis=1), doubts

    def means(self, position: int) -> FloatArray:
        return self._mean[:, :, position]

    def posteriors(self, queries: IndexArray, target: int) -> list[Posterior]:
        return [
            Posterior(mean=mean, deviation=np.full(mean.shape, 0.01))
            for mean in self._mean[queries, target]
        ]


def _warm(
    accuracy: Sequence[Sequence[float]],
    log_latency: Sequence[Sequence[float]],
    *,
    most: int = 10,
    doubts: Sequence[float] | None = None,
) -> WarmStart:
    """Return the votes of queries whose models are sure, all on as many inputs unless stated."""
    rests = np.full(len(accuracy), 0.1) if doubts is None else np.array(doubts)
    return WarmStart(Sure(np.array(accuracy), np.array(log_latency), rests), most)


def test_fewer_than_one_similar_query_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"warm_start.most must be >= 1, got 0."):
        _warm([[0.5] * 3], [[FAST] * 3], most=0)
    with pytest.raises(InvalidInput, match=r"cmbo.similar must be >= 0, got -1."):
        CmboSettings(similar=-1)


def test_before_anything_is_known_all_votes_weigh_the_same() -> None:
    accuracy = [[0.9, 0.0, 0.9], [0.0, 0.9, 0.9], [0.0, 0.0, 0.0]]
    warm = _warm(accuracy, [[FAST] * 3] * 3)
    assert warm.voted(ALL, WARM_START_SLO) == 2
    assert warm.voted(np.array([0]), WARM_START_SLO) == 0


def test_the_most_similar_of_all_are_those_of_a_sort_by_the_formula() -> None:
    rng = np.random.default_rng(0)
    queries, candidates, most = 200, 5, 10
    accuracy, log_latency = (
        rng.random((queries, candidates)),
        rng.normal(size=(queries, candidates)),
    )
    inputs = rng.integers(1, 100, queries)
    warm = _warm(accuracy.tolist(), log_latency.tolist(), doubts=(inputs**-0.5).tolist())
    assert warm.similar(0).tolist() == sorted(range(queries), key=lambda q: -inputs[q])[:most]
    profiled = [(0.3, 0.1), (0.8, -0.4), (0.5, 0.7)]
    for position, figures in enumerate(profiled):
        warm.learn(position, figures, figures, None)
    for target, (mean, floor) in enumerate(((accuracy, 0.02), (log_latency, 0.05))):

        def weight(q: int) -> float:
            gaps = [abs(mean[q, i] - profiled[i][target]) for i in range(3)]  # noqa: B023
            return float(1 / (sum(gaps) / 3 + 0.5 / inputs[q] ** 0.5 + floor))  # noqa: B023

        best = sorted(range(queries), key=lambda q: -weight(q))[:most]
        assert warm.similar(target).tolist() == best
        assert max(best) > most  # not the newest
        np.testing.assert_allclose(warm.weights[best, target], [weight(q) for q in best])


def test_votes_follow_the_formula() -> None:
    # g = 0.1 and 0.3 of accuracy, 0 of latency; n = 25 and 100, so u = 0.2 and 0.1.
    warm = _warm([[0.4, 0.7, 0.72], [0.2, 0.72, 0.694]], [[FAST] * 3] * 2, doubts=[0.2, 0.1])
    warm.learn(0, (0.5, FAST), (0.5, FAST), None)
    weights = np.array([1 / (0.1 + 0.1 + 0.02), 1 / (0.3 + 0.05 + 0.02)])
    np.testing.assert_allclose(warm.weights[:, 0], weights)
    np.testing.assert_allclose(warm.weights[:, 1], [1 / (0.1 + 0.05), 1 / (0.05 + 0.05)])
    chances = norm.sf(0.7, [[0.7, 0.72], [0.72, 0.694]], 0.01)
    votes = weights / weights.sum() @ chances  # all are fast: the other factor is 1
    assert warm.voted(np.array([1, 2]), WARM_START_SLO) == 1 + int(np.argmax(votes)) == 2


def test_far_from_the_slos_the_nearest_has_most_votes() -> None:
    """60, 50 and 40 deviations below the accuracy: no float64 holds such chances."""
    warm = _warm([[0.1, 0.2, 0.3]] * 2, [[FAST] * 3] * 2)
    assert warm.voted(ALL, WARM_START_SLO) == 2


def test_a_record_on_more_inputs_weighs_more() -> None:
    accuracy = [[0.5, 0.9, 0.0], [0.5, 0.0, 0.9]]  # alike where it was measured
    for doubts, expected in (((0.1, 1.0), 1), ((1.0, 0.1), 2)):
        warm = _warm(accuracy, [[FAST] * 3] * 2, doubts=doubts)
        warm.learn(0, (0.5, FAST), (0.5, FAST), None)
        assert warm.voted(np.array([1, 2]), WARM_START_SLO) == expected


def test_who_predicted_better_weighs_more() -> None:
    warm = _warm([[0.5, 0.9, 0.0], [0.5, 0.0, 0.9], [0.1, 0.9, 0.0]], [[FAST] * 3] * 3)
    assert warm.voted(np.array([1, 2]), WARM_START_SLO) == 1  # two against one
    models = _warm([[0.1, 0.9, 0.0], [0.5, 0.0, 0.9], [0.1, 0.9, 0.0]], [[FAST] * 3] * 3)
    models.learn(0, (0.5, FAST), (0.5, FAST), None)
    assert models.voted(np.array([1, 2]), WARM_START_SLO) == 2


def test_only_the_most_similar_vote() -> None:
    accuracy = [[0.5, 0.0, 0.9], [0.4, 0.9, 0.0], [0.4, 0.9, 0.0], [0.4, 0.9, 0.0]]
    for most, expected in ((1, 2), (4, 1)):
        warm = _warm(accuracy, [[FAST] * 3] * 4, most=most)
        for _ in range(3):
            warm.learn(0, (0.48, FAST), (0.48, FAST), None)
        assert warm.voted(np.array([1, 2]), WARM_START_SLO) == expected


def test_accuracy_may_follow_one_query_and_latency_another() -> None:
    accuracy = [[0.5, 0.0, 0.9], [0.1, 0.9, 0.0]]
    log_latency = [[SLOW, FAST, SLOW], [FAST, SLOW, FAST]]
    warm = _warm(accuracy, log_latency, most=1)
    warm.learn(0, (0.5, FAST), (0.5, FAST), None)
    assert warm.voted(np.array([1, 2]), WARM_START_SLO) == 2


@pytest.mark.parametrize(
    ("own", "mature"),
    [
        ((0.5, FAST), (True, True)),
        ((0.5, SLOW), (True, False)),
        ((0.1, FAST), (False, True)),
        (None, (False, False)),
    ],
)
def test_a_model_is_mature_once_it_predicts_better_than_those_of_similar_queries(
    own: tuple[float, float] | None, mature: tuple[bool, bool]
) -> None:
    warm = _warm([[0.4] * 3, [0.0] * 3], [[FAST + 0.1] * 3, [SLOW] * 3], most=1)
    for step in range(FEWEST_GAPS):
        assert not any(warm.mature), step
        warm.learn(0, (0.5, FAST), (0.5, FAST), own)
    assert warm.mature == mature


def test_a_mature_model_takes_the_place_of_its_votes() -> None:
    warm = _warm([[0.0, 0.9, 0.9]], [[FAST, SLOW, FAST]])
    assert warm.voted(ALL, WARM_START_SLO) == 2
    assert warm.voted(ALL, WARM_START_SLO, (np.log([0.9, 0.1, 0.5]), None)) == 0
    assert warm.voted(ALL, WARM_START_SLO, (None, np.log([0.9, 0.9, 0.1]))) == 1


WARM_START_GRAPH = chain(4, 4, 4)
WARM_START_SPACE = ConfigurationSpace(WARM_START_GRAPH)
ONE = Infrastructure(name="one", tiers=(Tier(name="t", price_usd_per_hour=3.6),))
WARM_START_ACCURACY = additive(
    [[0.1, 0.2, 0.3, 0.4], [0.0, 0.1, 0.2, 0.3], [0.0, 0.1, 0.05, 0.15]]
)
WARM_START_SECONDS = additive(
    [[0.02, 0.01, 0.03, 0.02], [0.0, 0.02, 0.01, 0.04], [0.03, 0.01, 0.02, 0.0]]
)


def _warm_start_planned(
    accuracy: Formula, seed: int, *history: QueryRecord, goal: float = 0.75
) -> PlanningResult:
    evaluator = SyntheticEvaluator(WARM_START_GRAPH, accuracy, WARM_START_SECONDS, noise=0.02)
    query = Query(
        pipeline=WARM_START_GRAPH.name, slo=Slo(accuracy=goal, latency_s=0.07), seed=seed
    )
    settings = SearchSettings(strategy=Cmbo, patience=1)
    return search(query, ONE, evaluator, TTest(), settings=settings, history=history)


def _warm_start_record(accuracy: Formula, seed: int) -> QueryRecord:
    result = _warm_start_planned(accuracy, seed, goal=0.6)
    return QueryRecord(
        query=f"earlier-{seed}",
        fingerprint="f",
        slo=WARM_START_SLO,
        configurations=result.configurations,
    )


def test_queries_that_measured_next_to_nothing_change_nothing() -> None:
    record = _warm_start_record(WARM_START_ACCURACY, 1)
    few = QueryRecord(
        query="few",
        fingerprint="f",
        slo=WARM_START_SLO,
        configurations=record.configurations[: FEWEST - 1],
    )
    assert _warm_start_planned(WARM_START_ACCURACY, 0, few) == _warm_start_planned(
        WARM_START_ACCURACY, 0
    )


@pytest.mark.slow
def test_like_queries_shorten_the_search() -> None:
    history = [_warm_start_record(WARM_START_ACCURACY, seed) for seed in range(10, 15)]
    warm = [_warm_start_planned(WARM_START_ACCURACY, seed, *history) for seed in range(5)]
    cold = [_warm_start_planned(WARM_START_ACCURACY, seed) for seed in range(5)]
    assert all(result.plans for result in (*warm, *cold))
    assert sum(r.measured for r in warm) < 0.8 * sum(r.measured for r in cold)


@pytest.mark.slow
def test_queries_that_mislead_are_outgrown() -> None:
    upside_down = additive([[0.4, 0.3, 0.2, 0.1], [0.3, 0.2, 0.1, 0.0], [0.15, 0.05, 0.1, 0.0]])
    history = [_warm_start_record(upside_down, seed) for seed in range(10, 13)]
    assert all(_warm_start_planned(WARM_START_ACCURACY, seed, *history).plans for seed in range(3))


def _measured_on(number: int, inputs: int, rng: np.random.Generator) -> ConfigurationRecord:
    return ConfigurationRecord(
        configuration=WARM_START_SPACE.configuration(number),
        inputs=inputs,
        accuracy=float(rng.random()),
        deviation=0.1,
        operator_s=tuple(rng.random(3).tolist()),
        operator_deviation_s=(0.0,) * 3,
        output_bytes=(100.0,) * 3,
        input_bytes=1000.0,
    )


def _random_query(name: str, count: int, rng: np.random.Generator) -> QueryRecord:
    numbers = rng.choice(WARM_START_SPACE.size, count, replace=False).tolist()
    records = (_measured_on(number, int(rng.integers(1, 50)), rng) for number in numbers)
    return QueryRecord(
        query=name, fingerprint="f", slo=WARM_START_SLO, configurations=tuple(records)
    )


def _models(
    history: Sequence[QueryRecord], request_rate_per_s: float | None = None
) -> EarlierModels:
    query = Query(
        pipeline=WARM_START_GRAPH.name, slo=WARM_START_SLO, request_rate_per_s=request_rate_per_s
    )
    setting = SearchSetting.of(query, WARM_START_GRAPH, ONE, 60, history=history)
    encoded = encode(WARM_START_SPACE, range(WARM_START_SPACE.size))
    models = earlier_models(setting, encoded, SurrogateSettings())
    assert models is not None
    return models


def test_means_of_many_processes_are_those_of_each_alone() -> None:
    rng = np.random.default_rng(1)
    encoded = encode(WARM_START_SPACE, range(WARM_START_SPACE.size))
    each = [(encoded[rng.permutation(64)[:n]], rng.random(n)) for n in (3, 40, 17, 1)]
    shared = fit(each[1][0], each[1][1][:, None])
    together = alike(shared, each)
    still = SurrogateSettings(warm_steps=0)
    for i, (x, y) in enumerate(each):
        alone = fit(x, y[:, None], warm=shared, settings=still).predict(encoded).mean[:, 0]
        means = [together.means(row)[i] for row in encoded]
        np.testing.assert_allclose(means, alone, rtol=1e-6, atol=1e-8)


def test_means_and_predictions_of_an_earlier_query_agree() -> None:
    rng = np.random.default_rng(2)
    history = [_random_query(f"q{i}", n, rng) for i, n in enumerate((5, 30, 12))]
    models = _models(history)
    for target in range(2):
        each = models.posteriors(np.array([2, 0]), target)
        for q, posterior in zip((2, 0), each, strict=True):
            means = [models.means(position)[q, target] for position in range(64)]
            np.testing.assert_allclose(posterior.mean, means, rtol=1e-6, atol=1e-8)
    inputs = [[one.inputs for one in query.configurations] for query in history]
    np.testing.assert_allclose(models.doubts, [np.mean(np.array(n) ** -0.5) for n in inputs])


def test_the_latencies_that_vote_have_the_waits_of_the_rate_and_those_compared_have_none() -> None:
    history = [_random_query("q", 20, np.random.default_rng(3))]
    idle, busy = _models(history), _models(history, request_rate_per_s=0.3)
    np.testing.assert_allclose(busy.means(7), idle.means(7))
    only = np.array([0])
    assert (busy.posteriors(only, 1)[0].mean > idle.posteriors(only, 1)[0].mean).all()


def test_of_a_long_record_the_best_known_configurations_count() -> None:
    rng = np.random.default_rng(4)
    graph = chain(10, 10)
    space = ConfigurationSpace(graph)
    few = [
        ConfigurationRecord(
            configuration=space.configuration(number),
            inputs=1 + (number >= 36),
            accuracy=0.5,
            deviation=0.1,
            operator_s=(0.1, 0.1),
            operator_deviation_s=(0.0, 0.0),
            output_bytes=(1.0, 1.0),
            input_bytes=1.0,
        )
        for number in rng.permutation(100).tolist()
    ]
    record = QueryRecord(query="q", fingerprint="f", slo=WARM_START_SLO, configurations=tuple(few))
    query = Query(pipeline=graph.name, slo=WARM_START_SLO)
    setting = SearchSetting.of(query, graph, ONE, 60, history=[record])
    models = earlier_models(setting, encode(space, range(100)), SurrogateSettings(first_steps=1))
    assert models is not None
    assert MOST == 64
    assert models.doubts.tolist() == [pytest.approx(2**-0.5)]
