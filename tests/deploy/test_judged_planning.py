"""Planning where a judge scores: what is shown as met is met by labels, whatever it says."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np
import pytest
from scipy.stats import binom

from circinus.deploy.planning import planner_of
from circinus.pipelines.clock import ManualClock
from circinus.pipelines.execution.features import InputFeatures
from circinus.pipelines.execution.metrics import Judge
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.io.datasets import Dataset, Example
from circinus.pipelines.io.presets import PRESETS
from circinus.pipelines.model.configuration import Configuration
from circinus.pipelines.model.operators import Knob, Operator, OperatorSpec, Settings
from circinus.pipelines.model.payload import Payload
from circinus.pipelines.model.plan import Plan
from circinus.pipelines.model.query import PlanningLimits, PlanningMethod, Query
from circinus.pipelines.model.slo import Slo, SloState
from circinus.planner.search.result import PlanningOutcome, PlanningResult
from circinus.profiler.execution import InProcess
from circinus.profiler.journal import MemoryJournal
from circinus.profiler.labelling import Labelling, WantedLabel
from circinus.profiler.measure import Profiler

SEARCHES = int(os.environ.get("CIRCINUS_TEST_SEARCHES", "20"))
INPUTS, SIZES = 400, 12
BOUND = 0.8
SLO = Slo(accuracy=BOUND, latency_s=10.0)


def _features() -> InputFeatures:
    return InputFeatures(values=np.zeros((INPUTS, 0)), source="no features")


@dataclass
class World:
    """One knob, twelve sizes: larger ones take longer and are right more often."""

    seed: int
    wrong: float = 0.05  # how often the judge is wrong, of all outputs
    kind: float = 0.0  # and how often it takes a wrong output for right
    strict: float = 0.0  # and a right one for wrong
    journal: MemoryJournal = field(default_factory=MemoryJournal)
    asked: list[WantedLabel] = field(default_factory=list)
    ran: Counter[tuple[int, int]] = field(default_factory=Counter)  # (input, size)

    def __post_init__(self) -> None:
        rng = np.random.default_rng(self.seed)
        right = rng.random((SIZES, INPUTS)) < np.linspace(0.55, 0.95, SIZES)[:, None]
        chance = rng.random((SIZES, INPUTS))
        flips = chance < np.where(right, self.wrong + self.strict, self.wrong + self.kind)
        self.right, self.judged = right, right != flips
        self.clock = ManualClock()

    def pipeline(self) -> Pipeline:
        knob = Knob(name="size", values=tuple(range(SIZES)))
        operator = Operator(spec=OperatorSpec(name="op", knobs=(knob,)), run=self._run)
        return Pipeline(name="p", operators=(operator,), score=Judge(judge=self._judge))

    def plan(
        self,
        budget: int,
        *,
        labels: Mapping[str, float] | None = None,
        asks: bool = True,
        strategy: str = "multi_fidelity",
        limit_s: float = 1e5,
    ) -> tuple[PlanningResult, Labelling]:
        method = PlanningMethod()
        if strategy != method.strategy:
            method = PlanningMethod(strategy=strategy, stopping="betting")
        limits = PlanningLimits(profiling_s=limit_s, response_s=None)
        query = Query(pipeline="p", slo=SLO, seed=self.seed, limits=limits, planning=method)
        planner = planner_of(query.planning)
        drawing = planner.drawing(_features, INPUTS, self.seed)
        examples = tuple(Example(input=i, expected=None) for i in range(INPUTS))
        data = Dataset(name="numbers", examples=examples)
        labelling = Labelling(
            dataset=data,
            journal=self.journal,
            budget=budget,
            labels=dict(labels or {}),
            ask=self.people if asks else None,
        )
        evaluator = Profiler(
            self.pipeline(),
            data,
            order=drawing.order,
            executor=InProcess(self.clock),
            journal=self.journal,
        )
        result = planner.search(
            query, PRESETS["local"], evaluator, drawing, clock=self.clock, audit=labelling
        )
        return result, labelling

    def people(self, wanted: Sequence[WantedLabel]) -> Mapping[str, float]:
        self.asked.extend(wanted)
        return {one.label: self.label(one.output) for one in wanted}

    def label(self, output: Payload) -> float:
        index, size = cast("list[int]", output)
        return float(self.right[size, index])

    def truth(self, configuration: Configuration) -> float:
        return float(self.right[int(configuration.of("op")["size"])].mean())

    def _run(self, inputs: Payload, knobs: Settings) -> Payload:
        assert isinstance(inputs, int)
        self.clock.sleep(0.01 * (1 + int(knobs["size"])))
        self.ran[inputs, int(knobs["size"])] += 1
        return [inputs, int(knobs["size"])]

    def _judge(self, given: Payload, output: Payload, expected: Payload) -> float:
        index, size = cast("list[int]", output)
        return float(self.judged[size, index])


def states(result: PlanningResult) -> set[SloState]:
    return {plan.states(SLO)["accuracy"] for plan in result.plans}


def met(result: PlanningResult) -> list[Plan]:
    return [plan for plan in result.plans if plan.states(SLO)["accuracy"] is SloState.MET]


def test_without_labels_no_plan_is_met_however_good_the_judge_says_it_is() -> None:
    result, labelling = World(seed=1, wrong=0.0).plan(0)
    assert result.plans
    assert states(result) == {SloState.LIKELY}
    assert labelling.labels == {}


def test_a_judge_that_says_all_is_right_makes_no_wrong_plan_met() -> None:
    world = World(seed=2, wrong=0.0, kind=1.0)
    result, labelling = world.plan(150)
    assert len(labelling.labels) <= 150
    for plan in met(result):
        assert world.truth(plan.configuration) >= BOUND


def test_a_strict_judge_hides_no_plan() -> None:
    # Of right outputs one in four is judged wrong: nothing reaches 0.8 by the judge.
    world = World(seed=4, wrong=0.0, strict=0.25)
    assert world.judged.mean(axis=1).max() < BOUND
    result, labelling = world.plan(300)
    assert SloState.MET in states(result)
    assert len(labelling.labels) <= 300
    for plan in result.plans:
        assert world.truth(plan.configuration) >= BOUND


@pytest.mark.parametrize("strategy", ["multi_fidelity", "exhaustive"])
def test_labels_are_asked_for_until_plans_are_met(strategy: str) -> None:
    world = World(seed=1)
    result, labelling = world.plan(400, strategy=strategy)
    assert result.outcome is PlanningOutcome.FEASIBLE
    assert SloState.MET in states(result)
    assert len(world.asked) == len(labelling.labels) <= 400
    for plan in result.plans:
        assert world.truth(plan.configuration) >= BOUND
        assert plan.accuracy.low <= world.truth(plan.configuration) <= plan.accuracy.high


def test_a_limit_that_ends_the_search_leaves_labels_to_what_was_found() -> None:
    world = World(seed=1)
    result, labelling = world.plan(200, limit_s=25.0)
    assert result.spent_s < 26.0
    assert 0 < len(labelling.labels) <= 200


def test_the_next_run_takes_the_labels_and_measures_nothing_again() -> None:
    world = World(seed=1)
    labels: dict[str, float] = {}
    for _ in range(8):
        result, labelling = world.plan(400, labels=labels, asks=False)
        assert not labels.keys() & labelling.wanted.keys()
        labels |= {one.label: world.label(one.output) for one in labelling.wanted.values()}
        if not labelling.wanted:
            break
    assert not labelling.wanted
    assert 0 < len(labels) <= 400
    assert SloState.MET in states(result)
    # What is run again is the first call of each size in a run, to be warm.
    assert world.ran.total() - len(world.ran) <= 8 * SIZES < len(world.ran) / 2


@pytest.mark.slow
@pytest.mark.parametrize("kind", [0.0, 0.3])
def test_of_plans_that_are_met_by_few_labels_few_are_not(kind: float) -> None:
    """Intervals are of 95 %: more plans than these are wrong once in 300 times."""
    worlds = [World(seed=seed, kind=kind) for seed in range(SEARCHES)]
    found = [(world, plan) for world in worlds for plan in met(world.plan(300)[0])]
    wrong = sum(world.truth(plan.configuration) < BOUND for world, plan in found)
    assert len(found) >= 2 / 3 * SEARCHES
    assert wrong <= binom.ppf(1 - 1 / 300, len(found), 0.05)
