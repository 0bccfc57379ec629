"""Strategies that choose pools, on a table."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from circinus.pipelines.errors import InvalidInput
from circinus.scheduler.pool.ribbon_space import EarlyEnd
from circinus.scheduler.pool.search import Pool, PoolSpace
from circinus.scheduler.simulation.measurements import LatencyTable
from circinus.studies.pool.lookups import PoolLookup, SimulatedLoad
from circinus.studies.pool.study import LoadChange, PoolRow, PoolStudy, run, searched, summary

SPACE = PoolSpace(types=("a", "b"), prices=(2.0, 1.0), most=(3, 4))


def lookup(**changed: float) -> PoolLookup:
    """7 are needed, an `a` serves 3 and a `b` 1: (2, 1) is the cheapest."""
    pools: list[Pool] = [tuple(pool) for pool in SPACE.pools.tolist()]
    shares = {pool: min((3 * pool[0] + pool[1]) / 7, 1.0) for pool in pools}
    shares |= {tuple(map(int, name[1:].split("_"))): share for name, share in changed.items()}
    return PoolLookup(model="own", space=SPACE, shares=shares)


def search(table: PoolLookup, name: str, seed: int, most: int | None = None) -> PoolRow:
    return searched(PoolStudy(lookups=(table,), most=most), table, name, seed)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"lookups": ()}, "lookups must not be empty"),
        ({"lookups": (lookup(), lookup())}, "lookups must not repeat, got 'own'"),
        ({"strategies": ()}, "strategies must not be empty"),
        ({"strategies": ("random", "random")}, "strategies must not repeat"),
        ({"strategies": ("best",)}, "strategies must be among ribbon, .*, got 'best'"),
        ({"strategies": ("calibrated",)}, "latencies of own must be told"),
        ({"seeds": 0}, "seeds must be >= 1"),
        ({"first_seed": -1}, "first_seed must be >= 0"),
        ({"most": 0}, "most must be >= 1"),
        ({"prunes_below": -0.1}, "prunes_below must be finite and >= 0"),
    ],
)
def test_a_study_that_makes_no_sense_is_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        PoolStudy(**({"lookups": (lookup(),)} | changed))


def test_a_search_ends_with_the_optimum_and_is_told_in_full() -> None:
    row = search(lookup(), "random", 3)
    assert row.found
    count = row.evaluations_to_optimum
    assert count is not None
    assert row.violating_evaluations < count
    assert 5.0 / float(SPACE.costs.sum()) <= row.exploration_cost < 1


def test_a_search_that_may_try_too_few_has_not_found_it() -> None:
    rows = [search(lookup(), "random", seed, 1) for seed in range(20)]
    missed = [row for row in rows if not row.found]
    assert missed
    assert {row.evaluations_to_optimum for row in missed} == {None}


@pytest.mark.slow
def test_pruning_throws_away_an_optimum_that_a_violating_pool_contains() -> None:
    # (3, 4) and all between do worse than the optimum that they contain
    worse = {f"p{a}_{b}": 0.9 for a, b in ((2, 2), (2, 3), (2, 4), (3, 0), (3, 1), (3, 2))}
    odd = lookup(**worse)
    safe = [search(odd, "ribbon_safe", seed) for seed in range(10)]
    pruned = [search(odd, "ribbon", seed) for seed in range(10)]
    assert all(row.found for row in safe)
    assert not all(row.found for row in pruned)


def test_a_threshold_for_all_is_that_of_every_strategy() -> None:
    table = lookup()
    study = PoolStudy(lookups=(table,), prunes_below=0.01)
    for seed in range(5):
        assert searched(study, table, "ribbon_safe", seed) == replace(
            search(table, "ribbon", seed), strategy="ribbon_safe"
        )


def test_another_pool_of_the_same_price_is_the_optimum_as_well() -> None:
    # 5 USD/h: (2, 1), (1, 3); both in time
    rows = [search(lookup(p1_3=1.0), "ribbon_safe", seed) for seed in range(5)]
    assert all(row.found for row in rows)


def test_a_summary_tells_of_the_found_and_of_all() -> None:
    kind = {"model": "m", "strategy": "s"}
    rows = [
        PoolRow(**kind, seed=0, evaluations_to_optimum=4, violating_evaluations=1,
                exploration_cost=0.1, found=True),
        PoolRow(**kind, seed=1, evaluations_to_optimum=8, violating_evaluations=3,
                exploration_cost=0.2, found=True),
        PoolRow(**kind, seed=2, evaluations_to_optimum=None, violating_evaluations=5,
                exploration_cost=0.3, found=False),
    ]  # fmt: skip
    (cell,) = summary(rows)
    assert cell.not_found == pytest.approx(1 / 3)
    assert (cell.evaluations, cell.median) == (6.0, 6.0)
    assert cell.deviation == pytest.approx(8**0.5)
    assert cell.violating == 3.0
    assert cell.cost == pytest.approx(0.2)
    (none,) = summary(rows[2:])
    assert (none.evaluations, none.deviation, none.median) == (None, None, None)


def test_a_study_writes_its_rows_and_a_page(tmp_path: Path) -> None:
    told: list[PoolRow] = []
    names = ("ribbon", "hill_climb")
    study = PoolStudy(lookups=(lookup(),), strategies=names, seeds=2, first_seed=5)
    rows = run(study, tmp_path, told.append)
    assert rows == told
    assert [(row.strategy, row.seed) for row in rows] == [(n, s) for n in names for s in (5, 6)]
    with (tmp_path / "pool.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert list(lines[0]) == [
        *("model", "strategy", "seed", "evaluations_to_optimum", "violating_evaluations"),
        *("exploration_cost", "found", "version"),
    ]
    page = (tmp_path / "pool.html").read_text()
    assert "(2, 1) of a, b is the cheapest in time, 5 USD/h" in page
    assert page.count("<svg") == 1


POOL_LOAD_CHANGE_SPACE = PoolSpace(types=("fast", "slow"), prices=(1.0, 0.4), most=(5, 6))
TABLE = LatencyTable(
    model="own",
    kinds=POOL_LOAD_CHANGE_SPACE.types,
    batches=np.array([100, 500]),
    mean_s=np.array([[0.010, 0.030], [0.030, 0.100]]),
    std_s=np.zeros((2, 2)),
)
LOAD = SimulatedLoad(table=TABLE, qos_s=0.1, requests=1000)


def test_a_rate_that_no_pool_serves_has_no_table() -> None:
    with pytest.raises(InvalidInput, match="own at 100000 1/s must have a feasible pool"):
        LOAD.lookup(POOL_LOAD_CHANGE_SPACE, 100_000.0)


def test_more_instances_of_one_type_serve_more_in_time() -> None:
    # some 25 ms each: one serves 40 a second
    shares = LOAD.lookup(POOL_LOAD_CHANGE_SPACE, 100.0).shares
    alone = [shares[count, 0] for count in range(1, 6)]
    assert alone == sorted(alone)
    assert alone[0] < 0.5
    assert alone[-1] == 1.0


def test_the_same_requests_come_at_every_rate_and_others_with_another_seed() -> None:
    once, again = (
        LOAD.lookup(POOL_LOAD_CHANGE_SPACE, 100.0),
        LOAD.lookup(POOL_LOAD_CHANGE_SPACE, 100.0),
    )
    assert once.shares == again.shares
    assert replace(LOAD, seed=1).lookup(POOL_LOAD_CHANGE_SPACE, 100.0).shares != once.shares


def test_a_trial_that_ends_early_violates_and_takes_a_part_of_the_requests() -> None:
    whole, short = (
        LOAD.lookup(POOL_LOAD_CHANGE_SPACE, 100.0),
        LOAD.lookup(POOL_LOAD_CHANGE_SPACE, 100.0, EarlyEnd(longest_queue=9)),
    )
    assert short.shares == whole.shares
    assert short.optimum == whole.optimum
    for pool, share in whole.shares.items():
        trial = short.measure(pool)
        if trial.ended_early:
            assert not short.goal().feasible(trial)
            assert 0 < short.paid(pool) <= whole.paid(pool) == POOL_LOAD_CHANGE_SPACE.cost(pool)
        else:  # as it would be, and never so bad that it had to end
            assert trial.value == share >= 0.98
            assert short.paid(pool) == whole.paid(pool)
    assert short.measure((1, 0)).ended_early
    assert short.paid((1, 0)) < 0.2


def test_the_useful_types_are_derived_from_the_sizes_that_come() -> None:
    # sizes to 500: the slow one takes 100 ms, as long as they may; 0.4 USD instead of 1, a third
    # of the speed: the fast one serves more for a dollar
    assert LOAD.of_useful((1.0, 0.4)).table.kinds == ("fast",)
    assert LOAD.of_useful((1.0, 0.2)).table.kinds == ("slow",)
    late = replace(LOAD, qos_s=0.09)
    assert late.of_useful((1.0, 0.2)).table.kinds == ("fast", "slow")


@pytest.mark.slow
def test_what_was_estimated_is_not_counted_and_the_settled_pool_is() -> None:
    change = LoadChange(
        earlier=LOAD.lookup(POOL_LOAD_CHANGE_SPACE, 60.0),
        new=LOAD.lookup(POOL_LOAD_CHANGE_SPACE, 120.0),
    )
    assert change.new.optimum != change.earlier.optimum
    for row in change.rows(range(3)):
        for count, violating in (
            (row.scratch, row.violating_scratch),
            (row.reused, row.violating_reused),
        ):
            assert count is None or 2 <= count <= len(POOL_LOAD_CHANGE_SPACE.pools)
            assert violating >= 1  # the settled pool
            assert count is None or violating < count
