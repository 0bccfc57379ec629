import numpy as np
import pytest

from circinus.pipelines.model.configuration import ConfigurationSpace
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.query import Query, fitted
from circinus.pipelines.model.slo import Slo
from circinus.pipelines.model.tiers import Tier
from circinus.planner.deployment.placement import placements
from circinus.planner.models.operator_seconds import Seconds, SecondsModel
from circinus.planner.strategy.space import indices_of
from tests.oracles.synthetic import chain


def _seconds() -> Seconds:
    rng = np.random.default_rng(0)
    return Seconds(
        hoped_s=rng.random((3, 6)).T,
        log_latency=rng.random(6),
        log_variance=np.array([0.0, 0.01, 0.1, 0.3, 0.5, 0.2]),
        paid=rng.integers(0, 9, (6, 3)),
        share_cost=np.array([1.0, 2.0, 2.5, 1.5, 4.0, np.inf]),
    )


def test_what_a_cheaper_plan_saves_is_its_mean_over_a_log_normal_cost() -> None:
    seconds, rng = _seconds(), np.random.default_rng(1)
    finite = seconds.at(np.arange(5))
    normal = rng.standard_normal((200_000, 1))
    deviation, half = np.sqrt(finite.log_variance), finite.log_variance / 2
    cost = finite.share_cost * np.exp(deviation * normal - half)
    expected = np.maximum(2.0 - cost, 0.0).mean(axis=0)
    assert finite.expected_saving(2.0) == pytest.approx(expected, abs=0.01)
    assert seconds.expected_saving(2.0)[5] == 0.0


def test_some_configurations_keep_what_is_known_of_them() -> None:
    seconds, rows = _seconds(), np.array([4, 1, 1])
    some = seconds.at(rows)
    for name in ("hoped_s", "log_latency", "log_variance", "paid", "share_cost"):
        assert getattr(some, name).tolist() == getattr(seconds, name)[rows].tolist()


def test_what_is_under_way_will_have_paid_for_all_that_share_its_first_operators() -> None:
    graph = chain(2, 3)
    space = ConfigurationSpace(graph)
    one = Infrastructure(name="one", tiers=(Tier(name="t"),))
    query = Query(pipeline=graph.name, slo=Slo(accuracy=0.5, latency_s=1.0))
    context = fitted(query, graph, one)
    knobs = indices_of(space, list(range(space.size)))
    model = SecondsModel(context, placements(graph, one), knobs, 10)
    row = space.number(space.parse({"o0": {"k": 1}, "o1": {"k": 2}}))
    before = np.full((space.size, 2), 3)
    before[row] = 0
    paid = model.paid_once(before, row, 4)
    assert paid.tolist() == [[3, 3], [3, 3], [3, 3], [4, 3], [4, 3], [4, 4]]
    assert before[row].tolist() == [0, 0]
