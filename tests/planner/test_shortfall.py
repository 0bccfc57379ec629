"""Relaxations beside brute force over every deployment, and how sure they are."""

from dataclasses import replace

import numpy as np
import pytest

from circinus.pipelines.model.configuration import ConfigurationSpace
from circinus.pipelines.model.infrastructure import Infrastructure, Link
from circinus.pipelines.model.latency import Work, request_seconds
from circinus.pipelines.model.plan import cost_usd_per_hour
from circinus.pipelines.model.profile import FloatArray, Profile
from circinus.pipelines.model.query import Query
from circinus.pipelines.model.slo import ANY_LATENCY_S, Slo
from circinus.pipelines.model.tiers import Tier
from circinus.planner.answers.known import Known, answer
from circinus.planner.models.latency_tail import LatencyTail
from circinus.planner.search.loop import SearchSettings, search
from circinus.planner.search.measuring import Bench, measured
from circinus.planner.search.result import PlanningOutcome, PlanningResult
from circinus.planner.search.shortfall import shortfall
from circinus.planner.strategy.in_order import exhaustive_search
from circinus.planner.strategy.multi_fidelity import MultiFidelity
from circinus.planner.strategy.protocol import Measured, Proposal, SearchSetting
from circinus.profiler.stopping import TTest
from tests.oracles.brute_force import deployments
from tests.oracles.synthetic import SyntheticEvaluator, additive, chain

TWO = Infrastructure(
    name="two",
    tiers=(
        Tier(name="edge", machines=2, price_usd_per_hour=1.0, speed_factor=0.5),
        Tier(name="cloud", machines=2, price_usd_per_hour=3.0),
    ),
    links=(Link(between=("edge", "cloud"), bandwidth_bytes_per_s=1e6, delay_s=0.001),),
)
GRAPH = chain(2, 2)
ACCURACY = additive([[0.3, 0.5], [0.0, 0.3]])
SECONDS = additive([[0.01, 0.02], [0.01, 0.04]])


def _searched(slo: Slo) -> PlanningResult:
    evaluator = SyntheticEvaluator(GRAPH, ACCURACY, SECONDS)
    # Seconds are constants here: measured is known, so nothing is held back.
    settings = SearchSettings(strategy=exhaustive_search, margin_confidence=None)
    return search(Query(pipeline="synthetic", slo=slo), TWO, evaluator, TTest(), settings=settings)


def _work(seconds: float) -> Work:
    return Work(
        operator_s=np.full((2, 1), seconds / 2),
        output_bytes=np.full((2, 1), 100.0),
        input_bytes=np.full(1, 1000.0),
    )


def _alone(scores: FloatArray, seconds: FloatArray) -> Profile:
    """Return what the first configuration of a single operator gave on each input."""
    return Profile(
        configuration=ConfigurationSpace(chain(1)).configuration(0),
        inputs=np.arange(len(scores)),
        score=scores,
        operator_s=seconds[None],
        output_bytes=np.ones((1, len(scores))),
        input_bytes=np.ones(len(scores)),
    )


def test_the_latency_relaxation_is_the_least_of_all_deployments_within_the_cost() -> None:
    slo = Slo(accuracy=0.75, latency_s=0.01, cost_usd_per_hour=1.2)
    why = _searched(slo).shortfall
    assert why is not None
    work = _work(0.06)  # 0.8 alone is accurate enough
    least = min(
        float(request_seconds(GRAPH, TWO, work, one).mean())
        for one in deployments(GRAPH, TWO)
        if cost_usd_per_hour(one.demand(GRAPH), TWO) <= 1.2 + 1e-9
    )
    assert why.relaxations["latency"] == pytest.approx(least)


def test_every_relaxation_is_told_with_what_is_sure() -> None:
    slo = Slo(accuracy=0.75, latency_s=0.05)
    why = _searched(slo).shortfall
    assert why is not None
    assert set(why.relaxations) == set(why.sure_relaxations)
    assert why.sure_relaxations["accuracy"] <= why.relaxations["accuracy"] == pytest.approx(0.5)
    assert why.sure_relaxations["latency"] >= why.relaxations["latency"] > 0.05
    assert "with 95% confidence" in why.sentence


def test_an_accuracy_is_told_as_it_was_asked() -> None:
    why = _searched(Slo(accuracy=0.99999, latency_s=1.0)).shortfall
    assert why is not None
    assert "confirmed to reach accuracy >= 0.99999 (" in why.sentence


def test_a_throughput_beyond_the_machines_binds_and_is_relaxed_to_what_they_give() -> None:
    slo = Slo(accuracy=0.75, latency_s=ANY_LATENCY_S, throughput_per_s=1000.0)
    result = _searched(slo)
    why = result.shortfall
    assert why is not None
    assert why.binding == ("throughput",)
    # Two cloud machines with all of 0.06 s: 33 per second; an operator each of 0.03 s on 2 and
    # of 0.06 s on 2 of the edge: 33 as well.
    assert why.relaxations["throughput"] == pytest.approx(2 / 0.06)
    relaxed = replace(slo, throughput_per_s=why.relaxations["throughput"] * (1 - 1e-9))
    assert _searched(relaxed).plans


def test_a_latency_that_holds_but_is_not_sure_to_is_relaxed_to_what_is() -> None:
    graph = chain(1)
    seconds = np.where(np.arange(40) % 2, 0.02, 0.04)  # 0.03 on average
    profile = _alone(np.ones(40), seconds)
    trusted = {profile.configuration: 0.5}
    known = Known(graph=graph, profiles=[profile], population=1000, trusted=trusted)
    one = Infrastructure(name="one", tiers=(Tier(name="cloud", price_usd_per_hour=1.0),))

    query = Query(pipeline=graph.name, slo=Slo(accuracy=0.5, latency_s=0.0301))
    why = answer(query, one, known, exhaustive_search, TTest()).shortfall
    assert why is not None
    # Beyond 0.03 + 2.02 x 0.0101 / sqrt(40): none of 40 inputs was slow, some of 1,000 may be.
    sure = why.relaxations["latency"]
    assert 0.0333 < sure < 0.04
    assert why.relaxations == why.sure_relaxations
    for factor, enough in ((0.999, False), (1.001, True)):
        relaxed = replace(query, slo=replace(query.slo, latency_s=factor * sure))
        assert bool(answer(relaxed, one, known, exhaustive_search, TTest()).plans) is enough


def _all_measured(slo: Slo) -> tuple[SearchSetting, list[Measured]]:
    """Return every configuration, measured on all inputs."""
    evaluator = SyntheticEvaluator(GRAPH, ACCURACY, SECONDS)
    query = Query(pipeline="synthetic", slo=slo)
    setting = SearchSetting.of(query, GRAPH, TWO, evaluator.population)
    bench, every = Bench(setting=setting, rule=TTest()), list[Measured]()
    for number in range(setting.space.size):
        one = [Proposal(number=number, inputs=evaluator.population)]
        found = measured(bench, evaluator, one, lambda number: 0, lambda inputs: False)
        every += [each for each in found if isinstance(each, Measured)]
    return setting, every


@pytest.mark.parametrize(
    ("accuracy", "cost"),
    [(0.95, None), (0.95, 0.5), (0.75, 0.001)],  # 0.8 is the best there is, 0.05 the least share
)
def test_what_is_told_too_late_to_compare_all_would_do_and_may_be_farther(
    accuracy: float, cost: float | None
) -> None:
    slo = Slo(accuracy=accuracy, latency_s=1.0, cost_usd_per_hour=cost)
    setting, every = _all_measured(slo)
    whole = shortfall(setting, every, LatencyTail(), None, "all measured")
    late = shortfall(setting, every, LatencyTail(), None, "all measured", lambda: True)
    assert late.closest is not None
    assert whole.closest is not None
    assert late.closest.accuracy.value == pytest.approx(0.8)
    assert late.binding == whole.binding
    assert "no time to compare" in late.sentence
    assert "no time to compare" not in whole.sentence
    for name, bound in late.relaxations.items():
        nearest = whole.relaxations[name]
        assert bound <= nearest if name == "accuracy" else bound >= nearest


@pytest.mark.parametrize(
    ("scores", "binding"),
    [
        ([0.0, 1.0, 0.0, 1.0, 0.0], ("latency",)),  # 0.4, anything up to 1 on five inputs
        ([0.0] * 40, ("accuracy", "latency")),
    ],
)
def test_beside_a_hopeless_latency_accuracy_binds_only_where_it_is_known_to(
    scores: list[float], binding: tuple[str, ...]
) -> None:
    graph = chain(1)
    profile = _alone(np.array(scores), np.full(len(scores), 0.01))
    known = Known(graph=graph, profiles=[profile], population=1000, trusted={})
    query = Query(pipeline=graph.name, slo=Slo(accuracy=0.7, latency_s=0.001))
    why = answer(query, TWO, known, exhaustive_search, TTest()).shortfall
    assert why is not None
    assert why.binding == binding


def _at_30_ms(machines: int, rate: float, latency_s: float = 0.1) -> PlanningResult:
    tiers = (Tier(name="t", price_usd_per_hour=1.0, machines=machines),)
    evaluator = SyntheticEvaluator(chain(2), lambda _: 0.9, lambda _: 0.03)
    slo = Slo(accuracy=0.8, latency_s=latency_s)
    query = Query(pipeline="synthetic", slo=slo, request_rate_per_s=rate)
    return search(query, Infrastructure(name="some", tiers=tiers), evaluator, TTest())


def test_a_rate_that_machines_do_not_bear_binds_and_is_told_with_what_they_bear() -> None:
    why = _at_30_ms(machines=2, rate=93.0).shortfall
    assert why is not None
    assert why.binding == ("request_rate",)
    # Two copies of 30 ms that are busy for 0.7 of the time: 2 * 0.7 / 0.03 = 46.67 a second.
    assert why.relaxations["request_rate"] == pytest.approx(46.667, abs=0.01)
    assert "93 requests per second on the machines that there are" in why.sentence
    assert "request rate 46.67 per second" in why.sentence
    assert "latency" not in why.relaxations


@pytest.mark.parametrize(("rate", "feasible"), [(46.6, True), (46.7, False)])
def test_the_rate_that_is_told_is_borne(rate: float, feasible: bool) -> None:
    assert bool(_at_30_ms(machines=2, rate=rate).plans) is feasible


def test_a_latency_that_no_machine_keeps_binds_whatever_the_rate() -> None:
    why = _at_30_ms(machines=2, rate=93.0, latency_s=0.01).shortfall
    assert why is not None
    assert why.binding == ("latency",)


def test_two_lucky_inputs_are_no_closest_plan_and_no_relaxation() -> None:
    """One configuration is known whole, at 0.96; of the other two inputs were met, both right."""
    evaluator = SyntheticEvaluator(
        chain(2), lambda row: (0.96, 1.0)[int(row[0])], lambda _: 0.01, noise=0.0
    )
    space = ConfigurationSpace(evaluator.graph)
    profiles = [
        evaluator.measure(space.configuration(0), evaluator.population),
        evaluator.measure(space.configuration(1), 2),
    ]
    known = Known(graph=evaluator.graph, profiles=profiles, population=60, trusted={})
    query = Query(pipeline="synthetic", slo=Slo(accuracy=0.99, latency_s=1.0))
    one = Infrastructure(name="one", tiers=(Tier(name="t", price_usd_per_hour=1.0),))
    found = answer(query, one, known, MultiFidelity, None)
    assert found.shortfall is not None
    assert found.shortfall.closest is not None
    assert found.shortfall.closest.accuracy.value == pytest.approx(0.96)
    assert found.shortfall.relaxations["accuracy"] == pytest.approx(0.96)
    assert found.undecided == 1


@pytest.mark.parametrize("price", [1.0, 0.0])
def test_a_cost_bound_of_nothing_is_kept_by_free_machines_only(price: float) -> None:
    tiers = (Tier(name="t", price_usd_per_hour=price),)
    slo = Slo(accuracy=0.5, latency_s=1.0, cost_usd_per_hour=0.0)
    evaluator = SyntheticEvaluator(chain(2), lambda _: 0.9, lambda _: 0.001)
    settings = SearchSettings(strategy=MultiFidelity)
    query = Query(pipeline="synthetic", slo=slo)
    result = search(query, Infrastructure(name="n", tiers=tiers), evaluator, settings=settings)
    if price:
        assert result.outcome is PlanningOutcome.INFEASIBLE
        assert result.shortfall is not None
        assert result.shortfall.binding == ("cost",)
    else:
        assert result.outcome is PlanningOutcome.FEASIBLE
