from math import exp, factorial, log

import numpy as np
import pytest

from circinus.pipelines.io.presets import PRESETS
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.latency import Work
from circinus.pipelines.model.query import PlanningContext, Query
from circinus.pipelines.model.slo import Slo
from circinus.planner.deployment.placement import placements
from circinus.planner.deployment.prediction import (
    copies,
    effective_latencies,
    effective_latency,
    mean_wait_s,
    meets,
    predict,
    quantile_wait_s,
    waiting_probability,
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


def _erlang_c(servers: int, load: float) -> float:
    tail = load**servers / factorial(servers) * servers / (servers - load)
    return tail / (sum(load**k / factorial(k) for k in range(servers)) + tail)


@pytest.mark.parametrize(("servers", "load"), [(1, 0.5), (2, 1.2), (10, 6.9), (40, 27.0)])
def test_the_waiting_probability_is_erlangs_sum(servers: int, load: float) -> None:
    got = waiting_probability(np.array([servers]), np.array([load]))[0]
    assert got == pytest.approx(_erlang_c(servers, load), rel=1e-9)


def test_one_server_waits_as_m_m_1_does() -> None:
    # rate 5, S = 0.1: rho = 0.5, W = rho S / (1 - rho) = 0.1.
    args = (5.0, np.array([0.1]), np.array([1]))
    assert mean_wait_s(*args)[0] == pytest.approx(0.1)
    # Pr[W > t] = 0.5 exp(-5 t) = 0.1 at t = ln(5) / 5.
    wait = quantile_wait_s(*args, 0.9)[0]
    assert wait == pytest.approx(log(5) / 5)
    assert 0.5 * exp(-5 * wait) == pytest.approx(0.1)


def test_a_quantile_below_those_who_wait_is_zero() -> None:
    assert quantile_wait_s(1.0, np.array([0.1]), np.array([1]), 0.5)[0] == 0


def test_copies_keep_utilisation_within_bounds() -> None:
    service = np.array([0.0, 0.07, 0.0701, 1.0])
    assert copies(10.0, service).tolist() == [1, 1, 2, 15]


def test_idle_groups_do_not_wait() -> None:
    assert mean_wait_s(10.0, np.array([0.0]), np.array([1]))[0] == 0
