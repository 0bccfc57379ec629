"""What a calibrated search states, and published tables beside the simulator."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from circinus.pipelines.errors import InvalidInput
from circinus.scheduler.pool.calibrated import Calibrated
from circinus.scheduler.pool.pools import Pool, PoolSpace
from circinus.scheduler.simulation.measurements import LatencyTable, parse_latencies
from circinus.scheduler.simulation.trying import FirstComeTrials, TrialLoad, trial_draws
from circinus.scheduler.simulation.workload import ribbon_batches
from circinus.studies.pool import calibration
from circinus.studies.pool.calibration import CHEAPEST, FEASIBLE, StatementRow

_DATA = Path(__file__).parents[2].parent / "shared/data"
needs_data = pytest.mark.skipif(not _DATA.is_dir(), reason="needs the shared data")

_MEAN_S = 0.01 * (1 + np.arange(10, 501, 10)[:, None] / 100) * np.array([1.0, 0.4])
TABLE = LatencyTable(
    model="m",
    kinds=("slow", "fast"),
    batches=np.arange(10, 501, 10),
    mean_s=_MEAN_S,
    std_s=0.05 * _MEAN_S,
)
SPACE = PoolSpace(types=("fast", "slow"), prices=(1.0, 0.5), most=(4, 3))
LOAD = TrialLoad(mix=ribbon_batches, qos_s=0.06, rate_rps=150.0, requests=500)


def said(stated: float, true: bool, about: str = FEASIBLE, model: str = "m") -> StatementRow:
    return StatementRow(
        model=model, seed=0, trial=1, about=about, pool="1", stated=stated, true=true, optimal=true
    )


def test_a_table_without_a_pool_is_refused() -> None:
    shares: dict[Pool, float] = {(0, 1): 0.5}
    with pytest.raises(InvalidInput, match="table must have every pool of the space"):
        calibration.tabled_problem(SPACE, shares, TABLE, LOAD, 0)


def test_a_type_that_was_not_measured_is_refused() -> None:
    space = replace(SPACE, types=("fast", "other"))
    with pytest.raises(InvalidInput, match="types must be among slow, fast, got 'other'"):
        calibration.simulated_problem(space, TABLE, LOAD, 0)


def test_statements_are_counted_in_bins() -> None:
    rows = [said(0.0, False), said(0.19, True), said(0.2, True), said(1.0, True)]
    rows.append(said(0.97, False, CHEAPEST))
    found = calibration.reliability(rows)
    assert [(row.about, row.low, row.count, row.true) for row in found] == [
        (CHEAPEST, 0.8, 1, 0.0),
        (FEASIBLE, 0.0, 2, 0.5),
        (FEASIBLE, 0.2, 1, 1.0),
        (FEASIBLE, 0.8, 1, 1.0),
    ]
    assert found[1].stated == pytest.approx(0.095)


def test_the_interval_of_a_share_is_wilsons() -> None:
    # 5 of 10: (0.5 + 0.192 -+ 1.96 sqrt(0.025 + 0.0096)) / 1.384
    assert calibration.wilson(0.5, 10) == pytest.approx((0.2366, 0.7634), abs=1e-4)
    assert calibration.wilson(0.0, 10)[0] == pytest.approx(0.0)
    assert calibration.wilson(1.0, 10)[1] == pytest.approx(1.0)


def test_a_search_ends_with_a_statement_about_the_cheapest(tmp_path: Path) -> None:
    def problem(seed: int) -> calibration.PoolProblem:
        return calibration.simulated_problem(SPACE, TABLE, LOAD, seed)

    rows, told = calibration.run(problem, range(3), tmp_path)
    for seed in range(3):
        mine = [row for row in rows if row.seed == seed]
        assert [row.about for row in mine] == [FEASIBLE] * (len(mine) - 1) + [CHEAPEST]
        assert [row.trial for row in mine] == list(range(1, len(mine) + 1))
        truth = problem(seed)
        cheapest = SPACE.costs[truth.good].min()
        for row in mine:
            pool = tuple(map(int, row.pool.split()))
            good = truth.measure(pool).value >= 0.99
            assert row.optimal == (good and SPACE.cost(pool) == pytest.approx(cheapest))
            assert row.true == (row.optimal if row.about == CHEAPEST else good)
    assert sum(row.count for row in told) == len(rows)
    with (tmp_path / "statements.csv").open() as file:
        assert len(list(csv.DictReader(file))) == len(rows)
    with (tmp_path / "reliability.csv").open() as file:
        assert len(list(csv.DictReader(file))) == len(told)


def test_where_no_pool_is_good_it_settles_on_none() -> None:
    problem = calibration.simulated_problem(SPACE, TABLE, replace(LOAD, rate_rps=2000.0), 0)
    rows = list(calibration.statements(problem, 0))
    assert not any(row.true for row in rows[:-1])
    assert (rows[-1].about, rows[-1].pool, rows[-1].true) == (CHEAPEST, "", True)


@pytest.mark.slow
def test_drawn_problems_are_those_of_their_seed() -> None:
    one, again, other = (calibration.drawn_problem(seed) for seed in (3, 3, 4))
    assert (one.truth == again.truth).all()
    assert not np.array_equal(one.truth, other.truth)
    assert ((one.truth >= 0) & (one.truth <= 1)).all()
    strategy = Calibrated(simulator=one.simulator, particles=16)
    assert next(calibration.statements(one, 3, strategy)).about in {FEASIBLE, CHEAPEST}


@needs_data
@pytest.mark.parametrize(
    ("model", "types", "most", "qos_s", "mean_gap_ms", "variability", "requests"),
    [
        # gaps vary by 1 / 1.5 and 1 / 18; the smoothest there is, by 1 / 16
        ("mtwnd", ("g4dn.xlarge", "c5.2xlarge", "r5n.large"), (5, 10, 12), 0.021, 1.5, 0.427, 20),
        ("resnet", ("c5a.4xlarge", "m5.2xlarge", "t3.2xlarge"), (8, 11, 9), 0.4, 18.0, 0.0, 10),
    ],
)
def test_the_simulator_is_near_the_published_tables(
    model: str,
    types: tuple[str, ...],
    most: Pool,
    qos_s: float,
    mean_gap_ms: float,
    variability: float,
    requests: int,
) -> None:
    table = parse_latencies((_DATA / "ribbon_latency.csv").read_text().splitlines(), model)
    cells = json.loads((_DATA / f"ribbon_lookup_{model}.json").read_text())
    shares = {tuple(map(int, pool.split(","))): cell[1] / 100 for pool, cell in cells.items()}
    space = PoolSpace(types=types, prices=(1.0,) * 3, most=most)
    load = TrialLoad(
        mix=ribbon_batches, qos_s=qos_s, rate_rps=1e3 / mean_gap_ms, requests=1000 * requests
    )
    draws = trial_draws(table.of_kinds(types), load, np.random.default_rng(0))
    count = len(space.pools)
    found = FirstComeTrials(draws=draws).in_time(
        space.pools, np.ones((count, 3)), np.full(count, variability), np.arange(count) % 4
    )
    truth = np.array([shares[tuple(pool)] for pool in space.pools.tolist()])
    apart = np.abs(found - truth)
    assert apart.mean() < 0.01
    assert np.median(apart) < 0.003
