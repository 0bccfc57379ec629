"""Where some measurements fail and some are NaN, neither models nor fronts hear of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circinus.pipelines.clock import ManualClock
from circinus.pipelines.io.presets import PRESETS
from circinus.pipelines.model.configuration import Configuration, ConfigurationSpace
from circinus.pipelines.model.graph import PipelineGraph
from circinus.pipelines.model.latency import Work, request_seconds
from circinus.pipelines.model.plan import Plan, cost_usd_per_hour
from circinus.pipelines.model.profile import Failure, Profile
from circinus.pipelines.model.query import PlanningLimits, Query
from circinus.pipelines.model.slo import Slo
from circinus.planner.search.loop import SearchSettings, search
from circinus.planner.search.result import PlanningResult
from circinus.planner.strategy.cmbo import Cmbo
from circinus.planner.strategy.multi_fidelity import MultiFidelity
from circinus.planner.strategy.protocol import (
    Judgement,
    Measured,
    Proposal,
    SearchSetting,
    Strategy,
    StrategyFactory,
)
from circinus.profiler.stopping import TTest
from tests.oracles.synthetic import chain

GRAPH = chain(3, 3)
SPACE = ConfigurationSpace(GRAPH)
N = 60
TIERS = PRESETS["three-tier"]


@dataclass
class Noisy:
    """Scores of 0 and 1, seconds with a spread; some configurations fail, some give NaN."""

    seed: int
    graph: PipelineGraph = GRAPH
    population: int = N
    spent_s: float = 0.0
    calls_s: float = 0.0
    calls_usd: float = 0.0
    known: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        rng = np.random.default_rng(self.seed)
        means = rng.uniform(0.2, 0.95, SPACE.size)
        self.score = (rng.random((SPACE.size, N)) < means[:, None]).astype(float)
        seconds = rng.uniform(0.002, 0.05, (SPACE.size, 2, 1))
        self.seconds = seconds * rng.lognormal(0, 0.3, (SPACE.size, 2, N))
        self.fails = rng.random(SPACE.size) < 0.2
        self.score[rng.random(SPACE.size) < 0.1, 5] = np.nan

    @property
    def width(self) -> int:
        return 1

    def measure_each(self, wanted: Sequence[tuple[Configuration, int]]) -> tuple[Profile, ...]:
        return tuple(self.measure(configuration, inputs) for configuration, inputs in wanted)

    def measure(self, configuration: Configuration, inputs: int) -> Profile:
        number = SPACE.number(configuration)
        before = self.known.get(number, 0)
        n = self.known[number] = max(before, inputs)
        self.spent_s += float(self.seconds[number, :, before:n].sum())
        failure = Failure(input=0, operator="o0", cause="made to fail")
        blank = np.nan if self.fails[number] else 1.0
        return Profile(
            configuration=configuration,
            inputs=np.arange(n),
            score=self.score[number, :n] * blank,
            operator_s=self.seconds[number, :, :n] * blank,
            output_bytes=np.full((2, n), 100.0) * blank,
            input_bytes=np.full(n, 1000.0),
            failures=(failure,) if self.fails[number] else (),
        )

    def is_bad(self, number: int) -> bool:
        n = self.known.get(number, 0)
        return bool(self.fails[number] or np.isnan(self.score[number, :n]).any())


class Spy:
    """Hands everything on and keeps what the strategy was told."""

    def __init__(self, inner: Strategy, told: list[tuple[int, Measured | None]]) -> None:
        self._inner = inner
        self._told = told

    def propose(self, under_way: Sequence[Proposal] = ()) -> Proposal | None:
        return self._inner.propose(under_way)

    def observe(self, number: int, measured: Measured | None) -> None:
        self._told.append((number, measured))
        self._inner.observe(number, measured)

    def judged(self, number: int, measured: Measured) -> Judgement:
        return self._inner.judged(number, measured)

    def finishing(
        self, plans: Sequence[Plan], under_way: Sequence[Proposal] = ()
    ) -> Proposal | None:
        return self._inner.finishing(plans, under_way)

    def undecided(self, plans: Sequence[Plan]) -> int | None:
        return self._inner.undecided(plans)

    def under(self, setting: SearchSetting) -> Strategy:
        return self._inner.under(setting)


def _query(accuracy: float, latency_s: float, seed: int) -> Query:
    slo = Slo(accuracy=accuracy, latency_s=latency_s, cost_usd_per_hour=3.0)
    return Query(pipeline=GRAPH.name, slo=slo, seed=seed, limits=PlanningLimits(profiling_s=8.0))


def _searched(
    query: Query,
    evaluator: Noisy,
    factory: StrategyFactory,
    told: list[tuple[int, Measured | None]],
) -> PlanningResult:
    def spied(setting: SearchSetting, rng: np.random.Generator) -> Strategy:
        return Spy(factory(setting, rng), told)

    return search(
        query,
        TIERS,
        evaluator,
        TTest(),
        settings=SearchSettings(strategy=spied, patience=6),
        clock=ManualClock(),
    )


@pytest.mark.parametrize("factory", [Cmbo, MultiFidelity])
@settings(max_examples=3, deadline=None, derandomize=True)
@given(
    world=st.integers(0, 10**6),
    accuracy=st.floats(0.3, 0.9),
    latency_s=st.floats(0.02, 0.3),
)
def test_no_failed_or_nan_measurement_reaches_a_model_or_a_front(
    factory: StrategyFactory, world: int, accuracy: float, latency_s: float
) -> None:
    query, evaluator = _query(accuracy, latency_s, world), Noisy(world)
    told: list[tuple[int, Measured | None]] = []
    result = _searched(query, evaluator, factory, told)
    # No failed or NaN measurement reaches a model, none a front.
    for number, measured in told:
        assert measured is None or np.isfinite(measured.scores).all()
        assert measured is None or not evaluator.fails[number]
    for plan in result.plans:
        number = SPACE.number(plan.configuration)
        assert not evaluator.is_bad(number)
        n = evaluator.known[number]
        work = Work(
            operator_s=evaluator.seconds[number, :, :n],
            output_bytes=np.full((2, n), 100.0),
            input_bytes=np.full(n, 1000.0),
        )
        seconds = request_seconds(GRAPH, TIERS, work, plan.deployment)
        assert evaluator.score[number, :n].mean() >= query.slo.accuracy
        assert seconds.mean() <= query.slo.latency_s * (1 + 1e-9)
        assert cost_usd_per_hour(plan.deployment.demand(GRAPH), TIERS) <= 3.0 + 1e-9
    # The same seed on the same measurements gives the same result.
    assert _searched(query, Noisy(world), factory, []) == result
