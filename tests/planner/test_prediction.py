import numpy as np
import pytest

from circinus.pipelines.io.presets import PRESETS
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.latency import Work
from circinus.pipelines.model.query import PlanningContext, Query
from circinus.pipelines.model.slo import Slo
from circinus.planner.deployment.placement import placements
from circinus.planner.deployment.prediction import (
    effective_latencies,
    effective_latency,
    meets,
    predict,
)
from tests.oracles.synthetic import chain

GRAPH = chain(0, 0, 0)
TIERS: Infrastructure = PRESETS["three-tier"]


@pytest.mark.parametrize(
    ("rate", "throughput"), [(None, None), (0.5, None), (8.0, None), (None, 3.0)]
)
def test_effective_latencies_are_those_of_predictions_and_say_what_meets_the_slo(
    rate: float | None, throughput: float | None
) -> None:
    slo = Slo(accuracy=0.5, latency_s=0.4, throughput_per_s=throughput)
    query = Query(pipeline=GRAPH.name, slo=slo, request_rate_per_s=rate)
    context, rng = (
        PlanningContext(graph=GRAPH, infrastructure=TIERS, query=query),
        np.random.default_rng(0),
    )
    every = placements(GRAPH, TIERS)
    spots = every.take(np.repeat(np.arange(len(every)), 20))
    steps = np.minimum(rng.integers(1, 21, spots.full_steps.shape), spots.full_steps)
    work = Work(
        operator_s=rng.uniform(0.01, 0.1, (3, 5)),
        output_bytes=rng.uniform(0, 1e4, (3, 5)),
        input_bytes=rng.uniform(0, 1e4, 5),
    )
    found = effective_latencies(context, spots, work, steps)
    prediction = predict(context, spots, work, steps)
    assert found.tolist() == effective_latency(context, prediction).tolist()
    fast = found <= slo.latency_s
    assert fast.tolist() == meets(context, prediction).tolist()
    assert fast.any()
    assert not fast.all()
