import numpy as np
import pytest

from pipelines.infrastructure import Infrastructure
from pipelines.latency import Work
from pipelines.presets import PRESETS
from pipelines.query import Query
from pipelines.slo import Slo
from planner.placement import placements
from planner.prediction import Scene, effective_latencies, effective_latency, meets, predict
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
    scene, rng = Scene(graph=GRAPH, infrastructure=TIERS, query=query), np.random.default_rng(0)
    every = placements(GRAPH, TIERS)
    spots = every.take(np.repeat(np.arange(len(every)), 20))
    steps = np.minimum(rng.integers(1, 21, spots.full_steps.shape), spots.full_steps)
    work = Work(
        operator_s=rng.uniform(0.01, 0.1, (3, 5)),
        output_bytes=rng.uniform(0, 1e4, (3, 5)),
        input_bytes=rng.uniform(0, 1e4, 5),
    )
    found = effective_latencies(scene, spots, work, steps)
    prediction = predict(scene, spots, work, steps)
    assert found.tolist() == effective_latency(scene, prediction).tolist()
    fast = found <= slo.latency_s
    assert fast.tolist() == meets(scene, prediction).tolist()
    assert fast.any()
    assert not fast.all()
