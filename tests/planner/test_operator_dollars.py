"""What is expected of calls that were not made, from those that were."""

from __future__ import annotations

import numpy as np
import pytest

from circinus.pipelines.model.endpoints import CallPrice, Endpoint
from circinus.pipelines.model.operators import Knob, OperatorSpec
from circinus.pipelines.model.query import Query
from circinus.pipelines.model.slo import Slo
from circinus.planner.models.knob_process import KnobProcess, correlations
from circinus.planner.models.operator_cells import OperatorDollars, called_by_cells, dollars_kernel
from circinus.planner.models.operator_seconds import SecondsModel
from circinus.planner.strategy.protocol import SearchSetting
from circinus.planner.strategy.space import indices_of
from tests.oracles.called_problems import GRAPH, SPACE, CallingEvaluator, infrastructure

READ = OperatorSpec(
    name="read",
    knobs=(Knob(name="model", values=("own", "small", "large")), Knob(name="k", values=(1, 2))),
    calls=("small", "large"),
)
CELLS = np.array([(m, k) for m in range(3) for k in range(2)])
ENDPOINTS = (
    Endpoint(name="small", price=CallPrice(input_usd_per_million=1.0)),
    Endpoint(name="large", price=CallPrice(input_usd_per_million=10.0)),
    Endpoint(name="free"),
)


def dollars() -> OperatorDollars:
    process = KnobProcess(CELLS, correlations((3, 2), (False, True)), dollars_kernel([True, True]))
    return OperatorDollars(ENDPOINTS, called_by_cells(READ, CELLS), process)


def test_cells_call_what_their_settings_say() -> None:
    nothing = frozenset[str]()
    small, large = frozenset({"small"}), frozenset({"large"})
    called = [nothing, nothing, small, small, large, large]
    assert called_by_cells(READ, CELLS) == called


def test_before_anything_is_called_prices_say_what_is_dearer() -> None:
    expected = dollars().expected()
    assert expected[:2].tolist() == [0.0, 0.0]  # what is not called costs nothing, for certain
    assert expected[4] == pytest.approx(10 * expected[2])


def test_what_was_seen_is_known_and_carried_over_at_the_other_price() -> None:
    model = dollars()
    model.observe(2, np.full(20, 0.006))  # 6,000 tokens
    expected = model.expected()
    assert expected[2] == pytest.approx(0.006)
    # The other endpoint is asked for about as much, and not for a usual call's 1,000 tokens.
    assert 0.02 < expected[4] < 0.2
    assert expected[:2].tolist() == [0.0, 0.0]


def test_fewer_inputs_than_were_seen_change_nothing() -> None:
    model = dollars()
    model.observe(2, np.full(20, 0.006))
    model.observe(2, np.full(3, 1.0))
    assert model.expected()[2] == pytest.approx(0.006)


def test_calls_that_cost_nothing_are_expected_to_go_on_so() -> None:
    process = KnobProcess(CELLS, correlations((3, 2), (False, True)), dollars_kernel([True, True]))
    model = OperatorDollars(ENDPOINTS, [frozenset({"free"})] * 6, process)
    model.observe(0, np.zeros(4))
    assert model.expected().tolist() == [0.0] * 6


def test_the_predicted_cost_of_what_was_measured_holds_its_calls() -> None:
    """Every configuration measured: machines cost little, so calls are about all of it."""
    where = infrastructure(np.random.default_rng(5))
    evaluator = CallingEvaluator(5, where)
    rate = 2.0
    slo = Slo(accuracy=0.5, latency_s=30.0)
    query = Query(pipeline="ask", slo=slo, request_rate_per_s=rate)
    setting = SearchSetting.of(query, GRAPH, where, 20)
    numbers = list(range(SPACE.size))
    model = SecondsModel(
        setting.context,
        setting.placements,
        indices_of(SPACE, numbers),
        20,
        callers=setting.callers,
    )
    for number in numbers:
        configuration, work = SPACE.configuration(number), evaluator.work(number)
        model.consider(work, configuration)
        latency = float(setting.least_latencies([configuration], [work])[0])
        model.observe(number, work, latency)
    found = model.predict()
    for number in numbers:
        work = evaluator.work(number)
        assert work.used is not None
        # Lineages differ in every knob here: each cell was seen with its own dollars.
        usd = float(work.used[1, -1].mean()) + float(work.used[2, -1].mean())
        machines = found.share_cost[number] - 3600 * rate * usd
        assert 0 <= machines < 10.0
