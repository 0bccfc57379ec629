"""What a proposal and a tightening cost at fixed sizes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from circinus.pipelines.io.presets import PRESETS
from circinus.pipelines.model.configuration import ConfigurationSpace
from circinus.pipelines.model.latency import Work
from circinus.pipelines.model.profile import FloatArray
from circinus.pipelines.model.query import PlanningContext, Query
from circinus.pipelines.model.slo import Slo
from circinus.planner.deployment.placement import placements
from circinus.planner.deployment.prediction import condensed
from circinus.planner.deployment.shares import tightened
from circinus.planner.models.history import ConfigurationRecord, QueryRecord
from circinus.planner.strategy.cmbo import Cmbo
from circinus.planner.strategy.multi_fidelity import MultiFidelity
from circinus.planner.strategy.protocol import Proposal, SearchSetting, Strategy
from circinus.planner.strategy.surrogate import fit
from circinus.studies.planning.competitors import adapter
from tests.oracles.measured import measured_of
from tests.oracles.synthetic import chain

GRAPH = chain(5, 7, 10, 20)  # 7,000 configurations
SPACE = ConfigurationSpace(GRAPH)
SLO = Slo(accuracy=0.8, latency_s=0.5)


def _setting(infrastructure: str, history: tuple[QueryRecord, ...] = ()) -> SearchSetting:
    query = Query(pipeline=GRAPH.name, slo=SLO)
    return SearchSetting.of(query, GRAPH, PRESETS[infrastructure], 160, history=history)


def _earlier(configurations: int) -> tuple[QueryRecord, ...]:
    """Return an earlier query that measured so many, on 20 inputs each."""
    rng = np.random.default_rng(1)
    measured = [
        ConfigurationRecord.of(
            SPACE.configuration(number),
            rng.random(20),
            Work(
                operator_s=rng.uniform(0.01, 0.1, (4, 20)),
                output_bytes=np.full((4, 20), 1e4),
                input_bytes=np.full(20, 1e5),
            ),
        )
        for number in rng.permutation(SPACE.size)[:configurations].tolist()
    ]
    record = QueryRecord(
        query="earlier", fingerprint="benchmark", slo=SLO, configurations=tuple(measured)
    )
    return (record,)


class _Loop:
    """Observes and proposes by turns, on formulas with noise."""

    def __init__(self, strategy: Strategy) -> None:
        self.strategy = strategy
        self._rng = np.random.default_rng(0)
        self._scores: dict[int, FloatArray] = {}
        self.proposal = strategy.propose()

    def observe(self, number: int, inputs: int) -> None:
        known = self._scores.get(number, np.zeros(0))
        more = self._rng.random(max(inputs - len(known), 0)) < 0.3 + 0.4 * number / SPACE.size
        scores = self._scores[number] = np.concatenate([known, more.astype(float)])
        knobs = SPACE.indices([number])[0]
        seconds = np.repeat((0.01 + 0.01 * knobs)[:, None], len(scores), axis=1)
        work = Work(
            operator_s=seconds * np.linspace(0.9, 1.1, len(scores)),
            output_bytes=np.full((4, len(scores)), 1e4),
            input_bytes=np.full(len(scores), 1e5),
        )
        latency_s = float(seconds[:, 0].sum())
        seen = replace(measured_of(GRAPH, work, scores), number=number, latency_s=latency_s)
        self.strategy.observe(number, seen)

    def step(self) -> None:
        if self.proposal is not None:
            self.observe(self.proposal.number, self.proposal.inputs or 50)
        self.proposal = self.strategy.propose()


@pytest.mark.parametrize("observations", [10, 50, 100, 200, 400])
@pytest.mark.parametrize("tiers", ["one-tier", "three-tier"])
def test_a_proposal_of_ours_over_7000_candidates(
    benchmark: BenchmarkFixture, observations: int, tiers: str
) -> None:
    strategy = MultiFidelity(_setting(tiers), np.random.default_rng(0))
    loop = _Loop(strategy)
    for number in np.random.default_rng(1).permutation(SPACE.size)[:observations]:
        loop.observe(int(number), 2)
    benchmark.pedantic(  # type: ignore[no-untyped-call]  # the plugin's own
        loop.step, rounds=40, warmup_rounds=1
    )


@pytest.mark.parametrize("under_way", [0, 1, 3, 7])
def test_a_proposal_of_ours_beside_others_under_way(
    benchmark: BenchmarkFixture, under_way: int
) -> None:
    strategy = MultiFidelity(_setting("three-tier"), np.random.default_rng(0))
    loop = _Loop(strategy)
    for number in np.random.default_rng(1).permutation(SPACE.size)[:100]:
        loop.observe(int(number), 2)
    others: list[Proposal] = []
    while len(others) < under_way and (proposal := strategy.propose(others)) is not None:
        others.append(proposal)
    assert benchmark(strategy.propose, others) not in others


@pytest.mark.parametrize("recalled", [0, 100, 400])
def test_a_proposal_of_ours_that_knows_earlier_queries(
    benchmark: BenchmarkFixture, recalled: int
) -> None:
    setting = _setting("one-tier", _earlier(recalled))
    loop = _Loop(MultiFidelity(setting, np.random.default_rng(0)))
    for number in np.random.default_rng(2).permutation(SPACE.size)[:20]:
        loop.observe(int(number), 2)
    benchmark.pedantic(  # type: ignore[no-untyped-call]  # the plugin's own
        loop.step, rounds=40, warmup_rounds=1
    )


@pytest.mark.parametrize("observations", [10, 50, 100, 200])
def test_a_proposal_of_cmbo_over_7000_candidates(
    benchmark: BenchmarkFixture, observations: int
) -> None:
    strategy = Cmbo(_setting("one-tier"), np.random.default_rng(0))
    loop = _Loop(strategy)
    for number in np.random.default_rng(1).permutation(SPACE.size)[:observations]:
        loop.observe(int(number), 50)
    while loop.proposal is not None and loop.proposal.chance is None:
        loop.step()  # the initial design
    benchmark.pedantic(loop.step, rounds=20)  # type: ignore[no-untyped-call]  # the plugin's own


@pytest.mark.parametrize("name", ["optuna_tpe", "optuna_gp", "botorch"])
@pytest.mark.parametrize("observations", [10, 50])
def test_a_proposal_of_others_over_7000_candidates(
    benchmark: BenchmarkFixture, observations: int, name: str
) -> None:
    pytest.importorskip(name.split("_")[0])
    loop = _Loop(adapter(name, 20)(_setting("one-tier"), np.random.default_rng(0)))
    for _ in range(observations):
        loop.step()
    benchmark.pedantic(loop.step, rounds=5)  # type: ignore[no-untyped-call]  # the plugin's own


@pytest.mark.parametrize("observations", [50, 100, 200])
def test_predicting_7000_candidates(benchmark: BenchmarkFixture, observations: int) -> None:
    rng = np.random.default_rng(0)
    surrogate = fit(rng.random((observations, 42)), rng.random((observations, 1)))
    assert benchmark(surrogate.predict, rng.random((7000, 42))).mean.shape == (7000, 1)


def test_tightening_a_chain_of_four_on_three_tiers(benchmark: BenchmarkFixture) -> None:
    rng = np.random.default_rng(0)
    infrastructure = PRESETS["three-tier"]
    query = Query(pipeline=GRAPH.name, slo=SLO)
    context = PlanningContext(graph=GRAPH, infrastructure=infrastructure, query=query)
    work = Work(
        operator_s=rng.uniform(0.005, 0.02, (4, 100)),
        output_bytes=rng.uniform(0, 1e5, (4, 100)),
        input_bytes=rng.uniform(0, 1e5, 100),
    )
    spots = placements(GRAPH, infrastructure)
    assert len(benchmark(tightened, context, spots, condensed(context, work))) > 0
