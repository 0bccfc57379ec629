"""Earlier queries vote in CMBO until its own models are better (Circinus 4.2)."""

import numpy as np
import pytest
from scipy.stats import norm

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.configuration import ConfigurationSpace
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.query import Query
from circinus.pipelines.model.slo import Slo
from circinus.pipelines.model.tiers import Tier
from circinus.planner.models.history import QueryRecord
from circinus.planner.search.loop import SearchSettings, search
from circinus.planner.search.result import PlanningResult
from circinus.planner.strategy.cmbo import FEWEST, Cmbo, CmboSettings, WarmStart, log_chance
from circinus.planner.strategy.surrogate import Posterior
from circinus.profiler.stopping import TTest
from tests.oracles.synthetic import Formula, SyntheticEvaluator, additive, chain

SLO = Slo(accuracy=0.7, latency_s=0.1)
FAST, SLOW = np.log(0.01), np.log(1.0)
ALL = np.arange(3)


def _warm(
    accuracy: list[list[float]], log_latency: list[list[float]], *, most: int = 10
) -> WarmStart:
    """Return the votes of queries whose models are sure of the values of three candidates."""
    mean = np.stack([np.array(accuracy), np.array(log_latency)], axis=1)
    return WarmStart(Posterior(mean=mean, deviation=np.full(mean.shape, 0.01)), most)


def test_fewer_than_one_similar_query_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"warm_start.most must be >= 1, got 0."):
        _warm([[0.5] * 3], [[FAST] * 3], most=0)
    with pytest.raises(InvalidInput, match=r"cmbo.similar must be >= 0, got -1."):
        CmboSettings(similar=-1)


def test_before_anything_is_known_all_votes_weigh_the_same() -> None:
    accuracy = [[0.9, 0.0, 0.9], [0.0, 0.9, 0.9], [0.0, 0.0, 0.0]]
    warm = _warm(accuracy, [[FAST] * 3] * 3)
    assert warm.voted(ALL, SLO) == 2
    assert warm.voted(np.array([0]), SLO) == 0


def test_who_predicted_better_weighs_more() -> None:
    warm = _warm([[0.5, 0.9, 0.0], [0.5, 0.0, 0.9], [0.1, 0.9, 0.0]], [[FAST] * 3] * 3)
    assert warm.voted(np.array([1, 2]), SLO) == 1  # two against one
    models = _warm([[0.1, 0.9, 0.0], [0.5, 0.0, 0.9], [0.1, 0.9, 0.0]], [[FAST] * 3] * 3)
    models.learn(0, (0.5, FAST), None)
    assert models.voted(np.array([1, 2]), SLO) == 2


def test_only_the_most_similar_vote() -> None:
    accuracy = [[0.5, 0.0, 0.9], [0.4, 0.9, 0.0], [0.4, 0.9, 0.0], [0.4, 0.9, 0.0]]
    for most, expected in ((1, 2), (4, 1)):
        warm = _warm(accuracy, [[FAST] * 3] * 4, most=most)
        for _ in range(3):
            warm.learn(0, (0.48, FAST), None)
        assert warm.voted(np.array([1, 2]), SLO) == expected


def test_accuracy_may_follow_one_query_and_latency_another() -> None:
    accuracy = [[0.5, 0.0, 0.9], [0.1, 0.9, 0.0]]
    log_latency = [[SLOW, FAST, SLOW], [FAST, SLOW, FAST]]
    warm = _warm(accuracy, log_latency, most=1)
    warm.learn(0, (0.5, FAST), None)
    assert warm.voted(np.array([1, 2]), SLO) == 2


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
    for step in range(FEWEST):
        assert not any(warm.mature), step
        warm.learn(0, (0.5, FAST), own)
    assert warm.mature == mature


def test_a_mature_model_takes_the_place_of_its_votes() -> None:
    warm = _warm([[0.0, 0.9, 0.9]], [[FAST, SLOW, FAST]])
    assert warm.voted(ALL, SLO) == 2
    assert warm.voted(ALL, SLO, (np.array([0.9, 0.1, 0.5]), None)) == 0
    assert warm.voted(ALL, SLO, (None, np.array([0.9, 0.9, 0.1]))) == 1


GRAPH = chain(4, 4, 4)
SPACE = ConfigurationSpace(GRAPH)
ONE = Infrastructure(name="one", tiers=(Tier(name="t", price_usd_per_hour=3.6),))
ACCURACY = additive([[0.1, 0.2, 0.3, 0.4], [0.0, 0.1, 0.2, 0.3], [0.0, 0.1, 0.05, 0.15]])
SECONDS = additive([[0.02, 0.01, 0.03, 0.02], [0.0, 0.02, 0.01, 0.04], [0.03, 0.01, 0.02, 0.0]])


def _planned(
    accuracy: Formula, seed: int, *history: QueryRecord, goal: float = 0.75
) -> PlanningResult:
    evaluator = SyntheticEvaluator(GRAPH, accuracy, SECONDS, noise=0.02)
    query = Query(pipeline=GRAPH.name, slo=Slo(accuracy=goal, latency_s=0.07), seed=seed)
    settings = SearchSettings(strategy=Cmbo, patience=1)
    return search(query, ONE, evaluator, TTest(), settings=settings, history=history)


def _record(accuracy: Formula, seed: int) -> QueryRecord:
    result = _planned(accuracy, seed, goal=0.6)
    return QueryRecord(
        query=f"earlier-{seed}", fingerprint="f", slo=SLO, configurations=result.configurations
    )


def test_queries_that_measured_next_to_nothing_change_nothing() -> None:
    record = _record(ACCURACY, 1)
    few = QueryRecord(
        query="few",
        fingerprint="f",
        slo=SLO,
        configurations=record.configurations[: FEWEST - 1],
    )
    assert _planned(ACCURACY, 0, few) == _planned(ACCURACY, 0)


def test_like_queries_shorten_the_search() -> None:
    history = [_record(ACCURACY, seed) for seed in range(10, 15)]
    warm = [_planned(ACCURACY, seed, *history) for seed in range(5)]
    cold = [_planned(ACCURACY, seed) for seed in range(5)]
    assert all(result.plans for result in (*warm, *cold))
    assert sum(r.measured for r in warm) < 0.8 * sum(r.measured for r in cold)


def test_queries_that_mislead_are_outgrown() -> None:
    upside_down = additive([[0.4, 0.3, 0.2, 0.1], [0.3, 0.2, 0.1, 0.0], [0.15, 0.05, 0.1, 0.0]])
    history = [_record(upside_down, seed) for seed in range(10, 13)]
    assert all(_planned(ACCURACY, seed, *history).plans for seed in range(3))


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
