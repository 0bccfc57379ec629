import numpy as np
import pytest

from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.latency import Work
from circinus.pipelines.model.query import PlanningContext, Query
from circinus.pipelines.model.slo import Slo
from circinus.pipelines.model.tiers import Tier
from circinus.planner.models.latency_tail import LatencyTail, lineage_cells
from tests.oracles.synthetic import chain

ONE = Infrastructure(name="one", tiers=(Tier(name="t", price_usd_per_hour=1.0),))
_NOWHERE = np.zeros(1, dtype=np.int64)


def _context() -> PlanningContext:
    query = Query(pipeline="synthetic", slo=Slo(accuracy=0.5, latency_s=1.0))
    return PlanningContext(graph=chain(3), infrastructure=ONE, query=query)


def _work(seconds: np.ndarray) -> Work:
    n = len(seconds)
    return Work(operator_s=seconds[None, :], output_bytes=np.ones((1, n)), input_bytes=np.ones(n))


def test_a_mean_over_all_inputs_is_known() -> None:
    seconds = np.array([1.0, 2.0, 3.0, 10.0])
    spread = LatencyTail()
    spread.add(("a",), _work(seconds))
    known = spread.means(_work(seconds), population=4)
    assert known.mean[0] == pytest.approx(4.0)
    assert known.variance[0] == 0.0
    assert spread.upper_ratio(_context(), _NOWHERE, _work(seconds), 4, 2.0) == pytest.approx(1.0)


def test_steady_seconds_of_many_inputs_need_next_to_no_margin() -> None:
    rng = np.random.default_rng(0)
    spread = LatencyTail()
    for cell in range(20):
        spread.add((cell,), _work(rng.normal(1.0, 0.01, 200)))
    work = _work(rng.normal(1.0, 0.01, 200))
    ratio = spread.upper_ratio(_context(), _NOWHERE, work, 1_000, 2.0)
    assert 1.0 <= ratio < 1.1


def test_slow_inputs_met_elsewhere_are_expected_here() -> None:
    # Every other cell has met one input in ten that takes 20 times as long: means are 2.9.
    slow = np.where(np.arange(40) % 10 == 9, 20.0, 1.0)
    spread = LatencyTail()
    for cell in range(30):
        spread.add((cell,), _work(slow))
    lucky = _work(np.full(9, 1.0))
    known = spread.means(lucky, population=1_000)
    assert known.mean[0] == pytest.approx(2.9, rel=0.15)


def test_a_quiet_start_is_corrected_by_the_scout() -> None:
    # The first 16 inputs are quiet, later ones are twice as slow for everybody.
    factor = np.where(np.arange(64) < 16, 1.0, 2.0)
    spread = LatencyTail()
    spread.add(("scout",), _work(0.1 * factor))
    ratio = spread.upper_ratio(_context(), _NOWHERE, _work(np.full(16, 1.0)), 64, 0.0)
    assert ratio > 1.5  # the truth is 1.75; without the scout it would be 1.0


@pytest.mark.parametrize("spikes", [0.0, 0.05])
def test_the_upper_end_holds_as_often_as_it_says(spikes: float) -> None:
    # z = 2.05: 98 %. Of 300 populations at most 4.5 % may break it: a correct end fails this
    # with a probability below 0.2 %.
    rng = np.random.default_rng(1)
    broken = 0
    for _ in range(300):
        slow = np.where(rng.random((12, 160)) < spikes, 8.0, 1.0)
        everything = rng.lognormal(0.0, 0.3, (12, 160)) * slow
        spread = LatencyTail()
        for cell, seconds in enumerate(everything):
            spread.add((cell,), _work(seconds[: 48 if cell == 0 else 16]))
        known = everything[1, :16]
        ratio = spread.upper_ratio(_context(), _NOWHERE, _work(known), 160, 2.05)
        broken += bool(known.mean() * ratio < everything[1].mean())
    assert broken <= 13


def test_configurations_that_share_a_lineage_share_its_cell() -> None:
    from circinus.pipelines.model.configuration import ConfigurationSpace

    graph = chain(2, 2)
    space = ConfigurationSpace(graph)
    first, second, third = (
        lineage_cells(graph, space.configuration(number)) for number in (0, 1, 2)
    )
    assert first[0] == second[0]
    assert first[1] != second[1]
    assert first[0] != third[0]


def test_beside_what_was_not_seen_the_interval_lies_about_the_mean() -> None:
    rng = np.random.default_rng(0)
    tail = LatencyTail()
    for cell in range(20):
        tail.add((cell,), _work(rng.normal(1.0, 0.3, 40)))
    work = _work(rng.normal(1.0, 0.3, 40))
    low, high = tail.interval(_context(), _NOWHERE, work, 100, 0.95)
    wider = tail.interval(_context(), _NOWHERE, work, 100, 0.99)
    assert wider[0] <= low < 1.0 < high <= wider[1]


def test_nothing_that_was_not_measured_is_slow_where_all_was() -> None:
    tail = LatencyTail()
    tail.add((0,), _work(np.ones(30)))
    assert tail.slow_chance(_work(np.ones(30)), 30) == 0.0
    assert tail.interval(_context(), _NOWHERE, _work(np.ones(30)), 30, 0.95) == (1.0, 1.0)


def test_few_quiet_runs_cannot_rule_out_slow_ones_and_many_can() -> None:
    tail, work = LatencyTail(), _work(np.ones(20))
    tail.add((0,), work)
    assert tail.slow_chance(work, 60) == 1.0  # half a slow run in 20: one in 40 is expected
    for cell in range(1, 100):
        tail.add((cell,), _work(np.ones(20)))
    assert tail.slow_chance(work, 60) == pytest.approx(0.5 * 40 / 2_000)


def test_a_configuration_that_runs_longer_meets_more_of_what_comes_by_the_second() -> None:
    tail = LatencyTail()
    for cell in range(99):
        tail.add((cell,), _work(np.ones(20)))
    long = _work(np.full(20, 10.0))
    tail.add((99,), long)
    assert tail.slow_chance(long, 60) == pytest.approx(0.5 * 400 / 2_180)


def test_slow_runs_that_were_seen_are_expected_again() -> None:
    tail, quiet = LatencyTail(), _work(np.ones(20))
    tail.add((0,), quiet)
    slow = np.ones(20)
    slow[7] = 25.0
    for cell in range(1, 100):
        tail.add((cell,), _work(slow if cell < 4 else np.ones(20)))
    assert tail.slow_chance(quiet, 60) == pytest.approx(3.5 * 40 / 2_000)
