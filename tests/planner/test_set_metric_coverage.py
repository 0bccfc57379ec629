"""What plans say of F1 with few positives, after a search that looked for the luckiest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from circinus.pipelines.execution.metrics import SetMetric
from circinus.pipelines.model.configuration import Configuration
from circinus.pipelines.model.graph import PipelineGraph
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.operators import Knob, OperatorSpec
from circinus.pipelines.model.payload import encode
from circinus.pipelines.model.profile import BoolArray, FloatArray, IntArray, Profile
from circinus.pipelines.model.query import Query
from circinus.pipelines.model.slo import Slo, SloState
from circinus.pipelines.model.tiers import Tier
from circinus.planner.search.loop import SearchSettings, search
from circinus.profiler.set_scores import Outputs, part_scores

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
