"""What a calibrated search states, and published tables beside the simulator."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from circinus.pipelines.errors import InvalidInput
from circinus.scheduler.pool.calibrated import Advice
from circinus.scheduler.pool.search import Pool, PoolSpace, search
from circinus.scheduler.simulation.loads import ribbon_batches
from circinus.scheduler.simulation.measurements import LatencyTable, parse_latencies
from circinus.scheduler.simulation.trying import FirstComeTrials, TrialLoad, trial_draws
from circinus.studies.data import DATA
from circinus.studies.pool import calibration
from circinus.studies.pool.calibration import CHEAPEST, FEASIBLE, StatementRow, misled
from circinus.studies.pool.lookups import PoolLookup, SimulatedLoad

_MEAN_S = 0.01 * (1 + np.arange(10, 501, 10)[:, None] / 100) * np.array([1.0, 0.4])
TABLE = LatencyTable(
    model="m",
    kinds=("slow", "fast"),
    batches=np.arange(10, 501, 10),
    mean_s=_MEAN_S,
    std_s=0.05 * _MEAN_S,
)
SPACE = PoolSpace(types=("fast", "slow"), prices=(1.0, 0.5), most=(4, 3))


def said(stated: float, true: bool, about: str = FEASIBLE, model: str = "m") -> StatementRow:
    return StatementRow(
        model=model, seed=0, trial=1, about=about, pool="1", stated=stated, true=true, optimal=true
    )


def known(rate_rps: float = 150.0) -> PoolLookup:
    return SimulatedLoad(table=TABLE.of_kinds(SPACE.types), qos_s=0.06, requests=500).lookup(
        SPACE, rate_rps
    )


def test_who_is_told_no_latencies_cannot_simulate() -> None:
    with pytest.raises(InvalidInput, match="latencies of m at 150 1/s must be told"):
        misled(replace(known(), profile=None), 0)


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


def test_a_search_ends_with_a_statement_about_the_cheapest() -> None:
    truth = known()
    for seed in range(3):
        strategy = misled(truth, seed)
        trials = search(truth.goal(), strategy, truth.measure, 99)
        rows = list(calibration.statements(truth, seed, trials, strategy.said))
        assert [row.about for row in rows] == [FEASIBLE] * len(trials) + [CHEAPEST]
        assert [row.trial for row in rows] == list(range(1, len(trials) + 2))
        for row in rows:
            pool = tuple(map(int, row.pool.split()))
            good = truth.measure(pool).value >= 0.99
            assert row.optimal == (good and SPACE.cost(pool) == SPACE.cost(truth.optimum))
            assert row.true == (row.optimal if row.about == CHEAPEST else good)


def test_to_settle_on_none_is_wrong_where_a_pool_is_good() -> None:
    truth, nothing = known(), Advice(None, 0.0, 0.9)
    (row,) = calibration.statements(truth, 0, (), (nothing,))
    assert (row.about, row.pool, row.stated, row.true) == (CHEAPEST, "", 0.9, False)


def test_hidden_factors_are_those_of_their_seed() -> None:
    truth = known()
    one, again, other = (misled(truth, seed).strategy.simulator for seed in (3, 3, 4))
    assert isinstance(one, FirstComeTrials)
    assert isinstance(again, FirstComeTrials)
    assert isinstance(other, FirstComeTrials)
    wrong = one.draws.table.mean_s
    assert (wrong == again.draws.table.mean_s).all()
    assert (wrong != other.draws.table.mean_s).any()
    factor = wrong / TABLE.of_kinds(SPACE.types).mean_s
    assert np.allclose(factor, factor[0])  # one for each type


@pytest.mark.slow
def test_drawn_problems_are_those_of_their_seed() -> None:
    one, again, other = (calibration.drawn_problem(seed) for seed in (3, 3, 4))
    assert one is not None
    assert again is not None
    assert other is not None
    assert one[0].shares == again[0].shares
    assert one[0].shares != other[0].shares


@pytest.mark.slow
def test_what_is_stated_of_drawn_problems_is_written(tmp_path: Path) -> None:
    rows, told = calibration.run(range(2), tmp_path)
    assert sum(row.count for row in told) == len(rows)
    for name, count in (("statements.csv", len(rows)), ("reliability.csv", len(told))):
        with (tmp_path / name).open() as file:
            assert len(list(csv.DictReader(file))) == count


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
    table = parse_latencies((DATA / "ribbon_latency.csv").read_text().splitlines(), model)
    cells = json.loads((DATA / f"ribbon_lookup_{model}.json").read_text())
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
