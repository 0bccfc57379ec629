"""What a proposal and a tightening cost at fixed sizes."""

from __future__ import annotations

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from pipelines.configuration import ConfigurationSpace
from pipelines.latency import Work
from pipelines.presets import PRESETS
from pipelines.query import Query
from pipelines.slo import Slo
from planner.allocation import tightened
from planner.cmbo import Cmbo, CmboSettings
from planner.placement import placements
from planner.prediction import Scene, condensed
from planner.strategy import Observation
from planner.surrogate import fit
from tests.oracles.synthetic import chain

GRAPH = chain(5, 7, 10, 20)  # 7,000 configurations
SPACE = ConfigurationSpace(GRAPH)
SLO = Slo(accuracy=0.8, latency_s=0.5)


def _strategy(observations: int) -> Cmbo:
    rng = np.random.default_rng(0)
    strategy = Cmbo(SPACE, SLO, rng, CmboSettings())
    for number in rng.permutation(SPACE.size)[:observations]:
        accuracy, seconds = rng.random(), rng.uniform(0.1, 1)
        seen = Observation(accuracy=accuracy, latency_s=seconds, reference_s=seconds, inputs=50)
        strategy.observe(int(number), seen)
    for _ in range(CmboSettings().initial):
        proposal = strategy.propose()
        if proposal is not None and proposal.chance is None:
            strategy.observe(proposal.number, None)
    strategy.propose()  # the first fit is from scratch
    return strategy


@pytest.mark.parametrize("observations", [10, 50, 100, 200])
def test_a_proposal_over_7000_candidates(benchmark: BenchmarkFixture, observations: int) -> None:
    assert benchmark(_strategy(observations).propose) is not None


@pytest.mark.parametrize("observations", [50, 100, 200])
def test_predicting_7000_candidates(benchmark: BenchmarkFixture, observations: int) -> None:
    rng = np.random.default_rng(0)
    surrogate = fit(rng.random((observations, 42)), rng.random((observations, 1)))
    assert benchmark(surrogate.predict, rng.random((7000, 42))).mean.shape == (7000, 1)


def test_tightening_a_chain_of_four_on_three_tiers(benchmark: BenchmarkFixture) -> None:
    rng = np.random.default_rng(0)
    infrastructure = PRESETS["three-tier"]
    query = Query(pipeline=GRAPH.name, slo=SLO)
    scene = Scene(graph=GRAPH, infrastructure=infrastructure, query=query)
    work = Work(
        operator_s=rng.uniform(0.005, 0.02, (4, 100)),
        output_bytes=rng.uniform(0, 1e5, (4, 100)),
        input_bytes=rng.uniform(0, 1e5, 100),
    )
    spots = placements(GRAPH, infrastructure)
    assert len(benchmark(tightened, scene, spots, condensed(scene, work))) > 0
