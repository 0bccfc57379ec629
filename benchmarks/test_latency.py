"""How long it takes to know the latency of every placement of a measured configuration."""

from __future__ import annotations

from itertools import product

import numpy as np
from pytest_benchmark.fixture import BenchmarkFixture

from circinus.pipelines.io.presets import PRESETS
from circinus.pipelines.model.graph import PipelineGraph
from circinus.pipelines.model.latency import Work, compose
from circinus.pipelines.model.operators import OperatorSpec

OPERATORS = 6
INPUTS = 160
SEED = 7


def test_composing_all_placements_of_a_chain_on_three_tiers(benchmark: BenchmarkFixture) -> None:
    names = [f"o{number}" for number in range(OPERATORS)]
    specs = [
        OperatorSpec(name=name, after=(names[number - 1],) if number else ())
        for number, name in enumerate(names)
    ]
    graph = PipelineGraph(name="chain", metric="score", unit="1", operators=tuple(specs))
    placement = np.array(list(product(range(3), repeat=OPERATORS)), dtype=np.int64)  # (729, 6)
    rng = np.random.default_rng(SEED)
    work = Work(
        operator_s=rng.uniform(0.001, 0.02, (OPERATORS, INPUTS)),
        output_bytes=rng.uniform(1e3, 1e5, (OPERATORS, INPUTS)),
        input_bytes=rng.uniform(1e4, 1e5, INPUTS),
    )
    shares = np.ones(placement.shape)

    seconds = benchmark(compose, graph, PRESETS["three-tier"], work, placement, shares)

    assert seconds.shape == (729, INPUTS)
