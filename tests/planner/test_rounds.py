"""Several proposals are measured at once, and a search is otherwise what it was."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circinus.pipelines.model.configuration import ConfigurationSpace
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.plan import Plan
from circinus.pipelines.model.query import PlanningLimits, Query
from circinus.pipelines.model.slo import Slo
from circinus.pipelines.model.tiers import Tier
from circinus.planner.search.loop import SearchSettings, search
from circinus.planner.search.measuring import Bench, FailedMeasurement, measured
from circinus.planner.search.result import PlanningOutcome, PlanningResult
from circinus.planner.search.rounds import proposed
from circinus.planner.strategy.cmbo import Cmbo
from circinus.planner.strategy.in_order import random_search
from circinus.planner.strategy.multi_fidelity import MultiFidelity
from circinus.planner.strategy.protocol import (
    Ending,
    Judgement,
    Measured,
    Proposal,
    SearchSetting,
    Strategy,
    StrategyFactory,
)
from circinus.profiler.stopping import TTest
from circinus.studies.planning.competitors import VideoStorm, Vulcan
from tests.oracles.synthetic import SyntheticEvaluator, additive, chain

ONE = Infrastructure(name="one", tiers=(Tier(name="t", price_usd_per_hour=3.6),))
GRAPH = chain(4, 4, 3)
SPACE = ConfigurationSpace(GRAPH)
ACCURACY = additive([[0.2, 0.3, 0.4, 0.5], [0.0, 0.1, 0.2, 0.3], [0.0, 0.05, 0.1]])
SECONDS = additive([[0.01, 0.02, 0.03, 0.04], [0.0, 0.01, 0.02, 0.03], [0.0, 0.01, 0.02]])
SLO = Slo(accuracy=0.6, latency_s=0.08)


class Script:
    """Proposes what it was given, one by one, whatever is under way."""

    def __init__(self, *proposals: Proposal) -> None:
        self._left = list(proposals)

    def propose(self, under_way: Sequence[Proposal] = ()) -> Proposal | None:
        assert all(proposal not in under_way for proposal in self._left)
        return self._left.pop(0) if self._left else None

    def observe(self, number: int, seen: Measured | None) -> None:
        raise AssertionError((number, seen))

    def judged(self, number: int, seen: Measured) -> Judgement:
        raise AssertionError((number, seen))

    def under(self, setting: SearchSetting) -> Strategy:
        raise AssertionError(setting)


def _ask(*proposals: tuple[int, int | None], width: int, new: float = np.inf) -> list[int]:
    """Return the numbers that are measured at once; those above 9 have met two inputs."""
    script = Script(*(Proposal(number=number, inputs=inputs) for number, inputs in proposals))
    found = proposed(script.propose, lambda n: 2 if n > 9 else 0, width=width, new=new)
    return [proposal.number for proposal in found]


def test_nothing_is_measured_where_nothing_is_proposed() -> None:
    assert _ask(width=4) == []


def test_no_more_is_asked_for_once_all_are_busy() -> None:
    assert _ask((1, 1), (2, 1), (3, 1), width=2) == [1, 2]
    assert _ask((1, 4), (2, 1), width=4) == [1]
    assert _ask((1, 3), (2, 1), (3, 1), width=4) == [1, 2]


def test_inputs_that_were_met_before_keep_nobody_busy() -> None:
    assert _ask((10, 4), (11, 3), (1, 1), width=3) == [10, 11]


def test_what_a_rule_ends_is_measured_alone() -> None:
    assert _ask((1, None), (2, 1), width=4) == [1]
    assert _ask((1, 1), (2, None), width=4) == [1]


def test_a_limit_on_configurations_counts_those_under_way() -> None:
    assert _ask((1, 1), (2, 1), (3, 1), (4, 1), width=4, new=3) == [1, 2, 3]
    assert _ask((1, 1), (10, 3), (2, 1), width=4, new=1) == [1, 10]
    assert _ask((1, 1), (2, 1), width=4, new=0) == [1]  # limits end a search elsewhere


def _evaluator(width: int, fails: Callable[[int], bool] = lambda _: False) -> SyntheticEvaluator:
    return SyntheticEvaluator(GRAPH, ACCURACY, SECONDS, noise=0.1, width=width, fails=fails)


def _searched(
    evaluator: SyntheticEvaluator,
    strategy: StrategyFactory,
    *,
    seed: int = 0,
    limits: PlanningLimits | None = None,
    accuracy: float = SLO.accuracy,
) -> PlanningResult:
    query = Query(pipeline=GRAPH.name, slo=replace(SLO, accuracy=accuracy), seed=seed)
    query = query if limits is None else replace(query, limits=limits)
    return search(query, ONE, evaluator, TTest(), settings=SearchSettings(strategy=strategy))


def _bench(evaluator: SyntheticEvaluator) -> Bench:
    query = Query(pipeline=GRAPH.name, slo=SLO)
    setting = SearchSetting.of(query, GRAPH, ONE, evaluator.population)
    return Bench(setting=setting, rule=TTest())


def test_all_are_begun_at_once_and_who_is_idle_helps_with_the_first() -> None:
    evaluator, met, told = _evaluator(4), {7: 2, 8: 0, 9: 5}, list[int]()
    for number, inputs in met.items():
        if inputs:
            evaluator.measure(SPACE.configuration(number), inputs)
    proposals = [Proposal(number=n, inputs=i) for n, i in ((7, 6), (8, 3), (9, 6))]

    def must_stop(inputs: int) -> bool:
        told.append(inputs)
        return False

    found = measured(_bench(evaluator), evaluator, proposals, met.__getitem__, must_stop)
    assert evaluator.together == [{7: 4, 8: 1, 9: 6}, {7: 6, 8: 3}]
    assert told == [4 + 1 + 6, 6 + 3 + 6]
    assert [(one.number, one.inputs) for one in found] == [(7, 6), (8, 3), (9, 6)]
    assert {one.ending for one in found if isinstance(one, Measured)} == {Ending.PARTIAL}


def test_a_limit_cuts_off_what_is_not_done_and_a_failure_only_itself() -> None:
    evaluator = _evaluator(3, lambda number: number == 8)
    proposals = [Proposal(number=number, inputs=2) for number in (7, 8, 9)]
    bench = _bench(evaluator)
    first, failed, last = measured(bench, evaluator, proposals, lambda _: 0, lambda _: True)
    assert isinstance(failed, FailedMeasurement)
    assert isinstance(first, Measured)
    assert isinstance(last, Measured)
    assert first.ending is last.ending is Ending.CUT_OFF
    assert evaluator.together == [{7: 1, 8: 1, 9: 1}]
    going_on = measured(bench, evaluator, proposals, lambda _: 1, lambda _: False)
    assert [one.inputs for one in going_on] == [2, 2, 2]


@pytest.mark.parametrize("strategy", [Cmbo, Vulcan, VideoStorm])
def test_a_strategy_that_has_to_know_first_is_asked_for_one_at_a_time(
    strategy: StrategyFactory,
) -> None:
    wide, narrow = _evaluator(4), _evaluator(1)
    found, alone = _searched(wide, strategy), _searched(narrow, strategy)
    assert all(len(asked) == 1 for asked in wide.together)
    assert found.plans == alone.plans
    assert wide.spent_s == narrow.spent_s


@settings(max_examples=6, deadline=None, derandomize=True)
@given(
    width=st.integers(2, 6),
    seed=st.integers(0, 10**6),
    accuracy=st.sampled_from([0.4, 0.6, 0.7]),
    failing=st.frozensets(st.integers(0, SPACE.size - 1), max_size=5),
)
def test_whatever_is_measured_at_once_the_answer_is_true_and_nothing_that_failed_is_in_it(
    width: int, seed: int, accuracy: float, failing: frozenset[int]
) -> None:
    def run() -> tuple[PlanningResult, SyntheticEvaluator]:
        evaluator = _evaluator(width, lambda number: number in failing)
        strategy = MultiFidelity
        return _searched(evaluator, strategy, seed=seed, accuracy=accuracy), evaluator

    result, evaluator = run()
    assert result == run()[0]
    assert any(len(asked) > 1 for asked in evaluator.together)
    assert all(len(asked) <= width for asked in evaluator.together)
    for plan in result.plans:
        number = SPACE.number(plan.configuration)
        assert number not in failing
        row = SPACE.indices([number])[0]
        assert ACCURACY(row) >= accuracy - 1e-9
        assert SECONDS(row) <= SLO.latency_s + 1e-9
    assert result.outcome is not PlanningOutcome.INFEASIBLE


@pytest.mark.parametrize("strategy", [MultiFidelity, partial(random_search, inputs=2)])
@pytest.mark.parametrize("most", [1, 5, 7])
def test_no_more_configurations_are_measured_than_allowed(
    strategy: StrategyFactory, most: int
) -> None:
    evaluator = _evaluator(4)
    limits = PlanningLimits(configurations=most)
    _searched(evaluator, strategy, limits=limits, accuracy=0.87)
    assert len(evaluator.measured) == most


def test_a_budget_is_exceeded_by_one_input_of_each_that_measures() -> None:
    width, dearest = 4, 0.09
    for budget in (0.05, 0.2, 0.5):
        evaluator = _evaluator(width)
        limits = PlanningLimits(profiling_s=budget)
        result = _searched(evaluator, MultiFidelity, limits=limits, accuracy=0.87)
        assert result.stopped_because == "limit profiling_s reached"
        assert budget <= evaluator.spent_s <= budget + width * dearest


class Noting:
    """Hands everything on and notes what is asked for and told."""

    def __init__(self, inner: Strategy, log: list[tuple[str, int]]) -> None:
        self._inner = inner
        self._log = log

    def propose(self, under_way: Sequence[Proposal] = ()) -> Proposal | None:
        proposal = self._inner.propose(under_way)
        if proposal is not None:
            self._log.append(("asked", proposal.number))
        return proposal

    def observe(self, number: int, seen: Measured | None) -> None:
        self._log.append(("told", number))
        self._inner.observe(number, seen)

    def judged(self, number: int, seen: Measured) -> Judgement:
        return self._inner.judged(number, seen)

    def finishing(
        self, plans: Sequence[Plan], under_way: Sequence[Proposal] = ()
    ) -> Proposal | None:
        proposal = self._inner.finishing(plans, under_way)
        if proposal is not None:
            self._log.append(("asked", proposal.number))
        return proposal

    def undecided(self, plans: Sequence[Plan]) -> int | None:
        return self._inner.undecided(plans)

    def under(self, setting: SearchSetting) -> Strategy:
        return self._inner.under(setting)


def test_a_strategy_is_told_in_the_order_of_its_proposals() -> None:
    log: list[tuple[str, int]] = []

    def noting(setting: SearchSetting, rng: np.random.Generator) -> Strategy:
        return Noting(MultiFidelity(setting, rng), log)

    _searched(_evaluator(3), noting, accuracy=0.7)
    waiting: list[int] = []
    for what, number in log:
        if what == "asked":
            assert number not in waiting
            waiting.append(number)
        else:
            assert waiting.pop(0) == number
    assert len(waiting) <= 1  # the last proposal of a search that is settled
