from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pytest

from circinus.pipelines.execution.metrics import SetMetric
from circinus.pipelines.model.configuration import Configuration
from circinus.pipelines.model.graph import PipelineGraph
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.operators import Knob, OperatorSpec
from circinus.pipelines.model.payload import encode
from circinus.pipelines.model.profile import BoolArray, FloatArray, IntArray, Profile
from circinus.pipelines.model.query import PlanningLimits, Query
from circinus.pipelines.model.slo import Slo, SloState
from circinus.pipelines.model.tiers import Tier
from circinus.planner.models.score_noise import Increment, NoiseModel, increment, learnt, worth
from circinus.planner.search.loop import SearchSettings, search
from circinus.profiler.set_scores import Outputs, part_scores
from tests.contracts.test_drawing_evaluator import over_a_trace, over_operators
from tests.oracles.drawn import FlippingEvaluator


def test_all_inputs_are_worth_far_more_than_all_but_one() -> None:
    assert worth(np.array([0.0, 80.0, 160.0]), 160) == pytest.approx([0, 160, 102400], rel=0.01)


ROWS = np.array([0, 1, 0])


def test_increments_add_up_to_the_mean() -> None:
    scores = np.array([1.0, 0.0, 1.0, 1.0])
    first = increment(0, scores[:0], scores[:2], 10, deviation=0.5)
    second = increment(0, scores[:2], scores, 10, deviation=0.5)
    total = first.value * (first.stop - first.start) + second.value * (second.stop - second.start)
    assert total / second.stop == pytest.approx(0.75)
    assert (first.start, first.stop) == (0.0, second.start)


def test_the_noise_is_that_of_means_over_the_same_inputs() -> None:
    """Against simulation: 2,000 populations, error of each covariance below 4 deviations."""
    rng = np.random.default_rng(0)
    population, part, shared = 40, 1.0, 0.4
    spans = [(0, 0, 4), (1, 0, 10), (0, 4, 12)]  # of rows that differ in two knobs
    found = []
    for _ in range(2000):
        common = np.sqrt(shared) * rng.standard_normal(population)
        own = np.sqrt(1 - shared) * rng.standard_normal((2, population))
        scores = 0.5 * (common + own)
        scores -= scores.mean(axis=1, keepdims=True)  # what is estimated is the population's mean
        found.append(
            [
                increment(row, scores[row, :a], scores[row, :b], population, deviation=0.5).value
                for row, a, b in spans
            ]
        )
    steps = [
        Increment(
            row=row,
            start=float(worth(np.array(float(a)), population)),
            stop=float(worth(np.array(float(b)), population)),
            value=0.0,
            deviation=0.5,
        )
        for row, a, b in spans
    ]
    noise = NoiseModel(part=part, shared=0.1, near=(shared - 0.1) * np.exp(2 / 3))
    expected = noise.covariances(steps, steps, 2.0 * (ROWS[:, None] != ROWS))
    seen = np.cov(np.array(found).T)
    scale = np.sqrt(np.outer(np.diag(expected), np.diag(expected)) * 2 / 2000)
    assert (np.abs(seen - expected) < 4 * scale + 0.05 * np.abs(expected)).all()


def test_shared_noise_is_learnt() -> None:
    rng = np.random.default_rng(1)
    hard = rng.random(80) < 0.5
    alike = [np.where(rng.random(80) < 0.1, ~hard, hard).astype(float) for _ in range(6)]
    unlike = [(rng.random(80) < 0.5).astype(float) for _ in range(6)]
    means = np.full(6, 0.5)
    apart = 1.0 - np.eye(6)
    assert correlation(learnt(alike, means, apart), 1.0) > 0.5
    assert correlation(learnt(unlike, means, apart), 1.0) < 0.1
    assert learnt(unlike, means, apart).part == pytest.approx(1.0, abs=0.1)


def test_what_only_neighbours_share_is_told_from_what_all_share() -> None:
    """Against draws: two groups far apart, inputs hard for one group each, some for both."""
    rng = np.random.default_rng(2)
    both, own = rng.standard_normal(4000), rng.standard_normal((2, 4000))
    noise = rng.standard_normal((2, 5, 4000))
    scores = 0.5 + 0.1 * (
        np.sqrt(0.2) * both + np.sqrt(0.4) * own[:, None] + np.sqrt(0.4) * noise
    ).reshape(10, 4000)
    group = np.repeat([0, 1], 5)
    apart = np.where(group[:, None] == group, 1.0, 12.0)
    found = learnt(list(scores), np.full(10, 0.5), apart)
    assert correlation(found, 1.0) == pytest.approx(0.6, abs=0.05)
    assert correlation(found, 12.0) == pytest.approx(0.2, abs=0.05)


def correlation(noise: NoiseModel, apart: float) -> float:
    return float(noise.shared + noise.near * np.exp(-apart / 3))


CUTS, DETECTORS = (0.8, 1.2, 1.6, 2.0, 2.6), (0.8, 1.0, 1.2, 1.4)
GRAPH = PipelineGraph(
    name="rare",
    metric="f1",
    unit="1",
    operators=(
        OperatorSpec(
            name="flag",
            knobs=(Knob(name="cut", values=CUTS), Knob(name="detector", values=DETECTORS)),
        ),
    ),
)
SOURCE = 200_000  # inputs that examples are drawn from
ENCODED = (encode(0), encode(1))


def f1(outputs: Sequence[int], expected: Sequence[int]) -> float:
    out, want = np.array(outputs), np.array(expected)
    both = int(out.sum() + want.sum())
    return 2 * float((out & want).sum()) / both if both else 0.0


@dataclass(kw_only=True)
class Rare:
    """Inputs of which one in twenty is positive, as an Evaluator and what scores it."""

    seed: int
    population: int
    graph: PipelineGraph = GRAPH
    spent_s: float = 0.0
    calls_s: float = 0.0
    calls_usd: float = 0.0
    width: int = 1
    met: dict[Configuration, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        rng = np.random.default_rng(self.seed)
        self.positive = rng.random(SOURCE) < 0.05
        self.noise = rng.normal(size=(len(DETECTORS) + 1, SOURCE))
        self.metric = SetMetric(function=f1)

    def flagged(self, configuration: Configuration, count: int) -> IntArray:
        knobs = configuration.of("flag")
        which = DETECTORS.index(float(knobs["detector"]))
        shared, own = self.noise[-1, :count], self.noise[which, :count]
        signal = 2 * DETECTORS[which] * self.positive[:count]
        return np.asarray(0.7 * shared + 0.7 * own + signal > float(knobs["cut"]), dtype=np.int64)

    def true(self, configuration: Configuration, count: int) -> float:
        flagged = self.flagged(configuration, count).tolist()
        return f1(flagged, self.positive[:count].astype(int).tolist())

    def measure(self, configuration: Configuration, inputs: int) -> Profile:
        n = self.met[configuration] = max(self.met.get(configuration, 0), inputs)
        self.spent_s += 0.001
        return Profile(
            configuration=configuration,
            inputs=np.arange(n),
            score=np.ones(n),
            operator_s=np.full((1, n), 0.01),
            output_bytes=np.ones((1, n)),
            input_bytes=np.ones(n),
        )

    def measure_each(self, wanted: Sequence[tuple[Configuration, int]]) -> tuple[Profile, ...]:
        return tuple(self.measure(configuration, inputs) for configuration, inputs in wanted)

    def of(self, profile: Profile, counts: BoolArray, *, whole: bool) -> FloatArray | None:
        n = len(profile.inputs)
        made = Outputs(
            metric=self.metric,
            inputs=[0] * n,
            expected=self.positive[:n].astype(int).tolist(),
            outputs=[ENCODED[one] for one in self.flagged(profile.configuration, n)],
            alike=[str(one) for one in self.positive[:n]],
        )
        return part_scores(made, profile.inputs, whole=whole)


@dataclass(frozen=True, kw_only=True)
class Held:
    """Whether the chosen plan's intervals hold what they are of."""

    examples: bool
    ahead: bool
    wrong: bool  # it is shown as met for future inputs, and is not


def chosen(seed: int, bound: float, population: int = 400) -> Held | None:
    rare = Rare(seed=seed, population=population)
    slo = Slo(accuracy=bound, latency_s=1.0)
    result = search(
        Query(pipeline="rare", slo=slo, seed=seed),
        Infrastructure(name="one", tiers=(Tier(name="t"),)),
        rare,
        settings=SearchSettings(scores=rare),
    )
    if not result.plans:
        return None
    plan = result.plans[0]
    here, there = (rare.true(plan.configuration, n) for n in (population, SOURCE))
    known, ahead = plan.accuracy, plan.future.accuracy if plan.future else plan.accuracy
    return Held(
        examples=known.low - 1e-9 <= here <= known.high + 1e-9,
        ahead=ahead.low <= there <= ahead.high,
        wrong=ahead.at_least(bound) is SloState.MET and there < bound,
    )


@pytest.mark.slow
@pytest.mark.parametrize("bound", [0.5, 0.65])
def test_the_chosen_plan_has_the_f1_that_it_says(bound: float) -> None:
    """95 % of 60 are 57; of so many, 51 or fewer hold by chance once in 100."""
    found = [held for seed in range(60) if (held := chosen(seed, bound))]
    assert len(found) >= 30
    assert sum(held.examples for held in found) >= 0.86 * len(found)
    assert sum(held.ahead for held in found) >= 0.86 * len(found)
    assert sum(held.wrong for held in found) <= 0.05 * len(found)


PLANS = int(os.environ.get("CIRCINUS_TEST_PLANS", "30"))
ROUNDING = 1e-9
MACHINES = Infrastructure(name="one", tiers=(Tier(name="t", price_usd_per_hour=3.6),))


class Shown(NamedTuple):
    """A plan that was shown as met."""

    accuracy: float  # asked for
    truth: float
    value: float  # shown
    low: float  # end of the interval shown
    inputs: int  # draws counted
    population: int


def shown(seed: int) -> list[Shown]:
    """Return the plans of one drawn query that were shown as met."""
    rng = np.random.Generator(np.random.PCG64([seed, 7]))
    evaluator = FlippingEvaluator(population=int(rng.choice([40, 60, 80])), seed=seed)
    truth = np.sort(evaluator.truth)
    query = Query(
        pipeline=evaluator.graph.name,
        slo=Slo(accuracy=float(rng.uniform(truth[-4], truth[-1])), latency_s=10.0),
        limits=PlanningLimits(profiling_s=20.0),
        seed=seed,
    )
    return [
        Shown(
            accuracy=query.slo.accuracy,
            truth=float(evaluator.truth[evaluator.space.number(plan.configuration)]),
            value=plan.accuracy.value,
            low=plan.accuracy.low,
            inputs=plan.accuracy.inputs,
            population=evaluator.population,
        )
        for plan in search(query, MACHINES, evaluator).plans
        if plan.states(query.slo)["accuracy"] is SloState.MET
    ]


def untrue(plans: int, seeds: Iterator[int]) -> tuple[int, int]:
    """Return how many plans were shown as met, at least so many, and how many were not."""
    counted: list[Shown] = []
    while len(counted) < plans:
        counted += shown(next(seeds))
    return len(counted), sum(plan.truth < plan.accuracy - ROUNDING for plan in counted)


def test_all_inputs_measured_once_are_not_the_expected_score() -> None:
    # Of 40 inputs, of which 4 flip, the mean of single scores is off by 0.025 as a deviation.
    plans = [plan for seed in range(100, 103) for plan in shown(seed)]
    assert plans
    assert all(plan.low < plan.value for plan in plans)
    assert all(
        plan.inputs > plan.population for plan in plans if plan.value < plan.accuracy + 0.03
    )


def test_plans_shown_as_met_hold() -> None:
    # Were one in a hundred untrue, two of five or six were so in one of 700 drawings.
    counted, wrong = untrue(5, itertools.count(1))
    assert counted >= 5
    assert wrong <= 1


@pytest.mark.slow
def test_of_plans_shown_as_met_at_most_one_in_a_hundred_is_not() -> None:
    counted, wrong = untrue(PLANS, itertools.count(10_000))
    assert wrong <= counted / 100


ONE = Infrastructure(name="one", tiers=(Tier(name="t", price_usd_per_hour=3.6),))


def test_a_search_over_a_trace_of_draws_finds_and_pays_what_one_over_operators_does() -> None:
    query = Query(
        pipeline="flipping",
        slo=Slo(accuracy=0.2, latency_s=10.0),
        limits=PlanningLimits(profiling_s=1000.0),
    )
    real, replayed = search(query, ONE, over_operators()), search(query, ONE, over_a_trace())
    assert real.plans
    assert [plan.configuration for plan in real.plans] == [
        plan.configuration for plan in replayed.plans
    ]
    assert real.inputs == replayed.inputs > 5  # more than there are inputs: drawn again
