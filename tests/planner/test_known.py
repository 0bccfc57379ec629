"""What measurements say without measuring: plans under other circumstances, and why."""

from dataclasses import replace

import pytest

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.configuration import ConfigurationSpace
from circinus.pipelines.model.graph import PipelineGraph
from circinus.pipelines.model.infrastructure import Infrastructure, Link
from circinus.pipelines.model.profile import UNPLANNABLE, Failure
from circinus.pipelines.model.query import Query
from circinus.pipelines.model.restrictions import Choice, Restrictions
from circinus.pipelines.model.slo import HoldsFor, LatencyStatistic, Slo
from circinus.pipelines.model.tiers import Tier
from circinus.planner.answers.explaining import explained
from circinus.planner.answers.known import Answer, Known, answer
from circinus.planner.deployment.prediction import least_latencies, least_latency
from circinus.planner.search.loop import SearchSettings, search
from circinus.planner.search.result import PlanningResult
from circinus.planner.strategy.in_order import exhaustive_search
from circinus.planner.strategy.multi_fidelity import MultiFidelity
from circinus.planner.strategy.protocol import SearchSetting, StrategyFactory
from circinus.profiler.stopping import TTest
from tests.oracles.synthetic import SyntheticEvaluator, additive, chain

TWO = Infrastructure(
    name="two",
    tiers=(
        Tier(name="edge", machines=2, price_usd_per_hour=1.0, speed_factor=0.5),
        Tier(name="cloud", machines=2, price_usd_per_hour=3.0),
    ),
    links=(Link(between=("edge", "cloud"), bandwidth_bytes_per_s=1e6, delay_s=0.001),),
)
GRAPH = chain(3, 4)
QUERY = Query(pipeline="synthetic", slo=Slo(accuracy=0.55, latency_s=0.2))


def _evaluator() -> SyntheticEvaluator:
    accuracy = additive([[0.3, 0.5, 0.6], [0.0, 0.1, 0.2, 0.3]])
    seconds = additive([[0.01, 0.02, 0.04], [0.0, 0.01, 0.02, 0.04]])
    return SyntheticEvaluator(GRAPH, accuracy, seconds, fails=lambda number: number == 7)


def _searched(query: Query, infrastructure: Infrastructure) -> PlanningResult:
    # All inputs are known to the answer, a few to the search: so the search takes them as known.
    settings = SearchSettings(strategy=exhaustive_search, patience=1000, margin_confidence=None)
    return search(query, infrastructure, _evaluator(), TTest(), settings=settings)


def _known(graph: PipelineGraph = GRAPH) -> Known:
    evaluator, space = _evaluator(), ConfigurationSpace(graph)
    profiles = [evaluator.measure(space.configuration(n), 60) for n in range(space.size)]
    return Known(graph=graph, profiles=profiles, population=60, trusted={})


def _answer(query: Query = QUERY, infrastructure: Infrastructure = TWO) -> Answer:
    return answer(query, infrastructure, _known(), exhaustive_search, TTest())


@pytest.mark.parametrize(
    ("slo", "edge", "price"),
    [
        ({}, 2, 1.0),
        ({"latency_s": 0.05}, 2, 1.0),
        ({"accuracy": 0.85}, 2, 1.0),
        ({}, 0, 1.0),
        ({}, 2, 9.0),
        ({"cost_usd_per_hour": 0.5}, 2, 1.0),
    ],
)
def test_what_is_known_answers_as_a_new_search_would(
    slo: dict[str, float], edge: int, price: float
) -> None:
    query = replace(QUERY, slo=replace(QUERY.slo, **slo))  # type: ignore[arg-type]  # floats
    first = replace(TWO.tiers[0], machines=edge, price_usd_per_hour=price)
    infrastructure = replace(TWO, tiers=(first, TWO.tiers[1]))
    found = answer(query, infrastructure, _known(), exhaustive_search, TTest())
    wanted = _searched(query, infrastructure)
    assert bool(found.plans) == bool(wanted.plans)
    for ours, theirs in zip(found.plans[:1], wanted.plans[:1], strict=True):
        assert ours.configuration == theirs.configuration
        assert ours.cost_usd_per_hour == pytest.approx(theirs.cost_usd_per_hour)


@pytest.mark.parametrize("strategy", [exhaustive_search, MultiFidelity])
@pytest.mark.parametrize("statistic", ["mean", "p95"])
@pytest.mark.parametrize("rate", [None, 5.0])
def test_a_question_after_others_is_answered_as_if_it_were_the_first(
    strategy: StrategyFactory, statistic: str, rate: float | None
) -> None:
    evaluator, space = _evaluator(), ConfigurationSpace(GRAPH)
    profiles = [evaluator.measure(space.configuration(n), 20 + n) for n in range(space.size)]
    slo = replace(QUERY.slo, latency_statistic=LatencyStatistic(statistic))
    query = replace(QUERY, slo=slo, request_rate_per_s=rate)
    warm = Known(graph=GRAPH, profiles=profiles, population=60, trusted={})
    slow = replace(TWO, tiers=(replace(TWO.tiers[0], speed_factor=0.3), TWO.tiers[1]))
    few = replace(TWO, tiers=(replace(TWO.tiers[0], machines=0), TWO.tiers[1]))
    for changed in (
        slo,
        replace(slo, accuracy=0.7),
        replace(slo, latency_s=0.06),
        replace(slo, latency_s=0.06, cost_usd_per_hour=2.0),
        replace(slo, accuracy=0.99),
        replace(slo, latency_s=1e-4),
        replace(slo, holds_for=HoldsFor.FUTURE),
    ):
        for there in (TWO, slow, few, TWO):
            asked = replace(query, slo=changed)
            ours = answer(asked, there, warm, strategy, TTest())
            anew = replace(warm)  # remembers nothing
            theirs = answer(asked, there, anew, strategy, TTest())
            assert ours.plans == theirs.plans
            assert ours.shortfall == theirs.shortfall
            assert ours.accurate == theirs.accurate
            for one, other in zip(ours.measured, theirs.measured, strict=True):
                assert (one.number, one.ending) == (other.number, other.ending)
                assert one.latency_s == other.latency_s


def test_least_latencies_at_once_are_those_of_each() -> None:
    setting = SearchSetting.of(QUERY, GRAPH, TWO, 60)
    works = [one.work for one in _answer().measured]
    each = [least_latency(setting.context, setting.placements, work) for work in works]
    at_once = least_latencies(setting.context, setting.placements, works)
    assert at_once.tolist() == each
    assert least_latencies(setting.context, setting.placements, []).tolist() == []


def test_without_measurements_nothing_is_known() -> None:
    nothing = Known(graph=GRAPH, profiles=(), population=60, trusted={})
    found = answer(QUERY, TWO, nothing, exhaustive_search, TTest())
    assert found.plans == ()
    assert found.shortfall is not None
    assert found.shortfall.closest is None


def test_what_failed_or_is_ruled_out_is_in_no_answer() -> None:
    query = replace(QUERY, restrictions=Restrictions(knobs={"o0": {"k": Choice(never=(1,))}}))
    found = _answer(query)
    assert found.failed == ()  # number 7 is (1, 3): ruled out
    assert {m.configuration.of("o0")["k"] for m in found.measured} == {0, 2}
    assert [f.number for f in _answer().failed] == [7]


def test_a_configuration_that_a_strategy_was_sure_of_stays_trusted_for_its_slo() -> None:
    evaluator, space = _evaluator(), ConfigurationSpace(GRAPH)
    # Three inputs are too few for the rule.
    profile = evaluator.measure(space.configuration(5), 3)
    for trusted, plans in ((0.55, True), (0.5, False)):
        known = Known(
            graph=GRAPH,
            profiles=[profile],
            population=60,
            trusted={profile.configuration: trusted},
        )
        assert bool(answer(QUERY, TWO, known, exhaustive_search, TTest()).plans) is plans


def test_an_explanation_of_a_plan_that_was_not_measured_is_refused() -> None:
    plan = _answer().plans[0]
    nothing = Known(graph=GRAPH, profiles=(), population=60, trusted={})
    with pytest.raises(InvalidInput, match="must be of a configuration that was measured"):
        explained(plan, answer(QUERY, TWO, nothing, exhaustive_search, TTest()), nothing)


def test_an_explanation_adds_up() -> None:
    found = _answer()
    for plan in found.plans:
        told = explained(plan, found, _known())
        assert [part.operator for part in told.operators] == ["o0", "o1"]
        cost = sum(part.cost_usd_per_hour for part in told.operators)
        assert cost == pytest.approx(plan.cost_usd_per_hour)
        # A chain: seconds and transfers add up to the latency.
        seconds = sum(part.seconds + part.transfer_s for part in told.operators)
        assert seconds == pytest.approx(plan.latency_s.value)
        assert len(told.alternatives) == 2  # each operator on the other tier


def test_an_explanation_counts_every_configuration_once() -> None:
    found = _answer()
    told = explained(found.plans[0], found, _known())
    planned = {plan.configuration for plan in found.plans}
    out = {each.by: each.configurations for each in told.ruled_out}
    assert sum(out.values()) + len(planned) == ConfigurationSpace(GRAPH).size
    assert out["failure"] == 1
    # Below 0.55: 0.3 0.4 0.5 of the first knob at 0, 0.5 at 1.
    assert out["accuracy"] == 4


def test_an_explanation_names_what_rules_an_alternative_out() -> None:
    pinned = replace(QUERY, restrictions=Restrictions(tiers={"o0": Choice(only=("cloud",))}))
    found = _answer(pinned)
    told = explained(found.plans[0], found, _known())
    assert [a.because for a in told.alternatives if a.operator == "o0"] == [
        "ruled out by a restriction"
    ]
    tight = replace(QUERY, slo=Slo(accuracy=0.55, latency_s=0.0325))
    found = _answer(tight)
    told = explained(found.plans[0], found, _known())
    assert {a.possible for a in told.alternatives} == {False}
    assert all(a.because.startswith("ruled out by latency") for a in told.alternatives)


def test_what_is_accurate_is_judged_by_the_strategy_that_saw_all_of_it() -> None:
    # 16 inputs of each of 11 configurations: the rule alone says nothing before 50.
    evaluator, space = _evaluator(), ConfigurationSpace(GRAPH)
    numbers = [number for number in range(space.size) if number != 7]
    profiles = [evaluator.measure(space.configuration(number), 20) for number in numbers]
    known = Known(graph=GRAPH, profiles=profiles, population=60, trusted={})
    assert answer(QUERY, TWO, known, exhaustive_search, TTest()).plans == ()
    found = answer(QUERY, TWO, known, MultiFidelity, None)
    assert found.plans
    truly = additive([[0.3, 0.5, 0.6], [0.0, 0.1, 0.2, 0.3]])
    for plan in found.plans:
        row = space.indices([space.number(plan.configuration)])[0]
        assert truly(row) >= QUERY.slo.accuracy


def test_what_ended_planning_gives_no_plan() -> None:
    known = _known()
    lost = Failure(input=3, operator="o0", cause=f"{UNPLANNABLE}no payload")
    profiles = [replace(known.profiles[0], failures=(lost,)), *known.profiles[1:]]

    found = answer(QUERY, TWO, replace(known, profiles=profiles), exhaustive_search, TTest())

    assert _answer().plans
    assert found.plans == ()
