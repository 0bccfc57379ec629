"""Strategies that choose pools, on a table."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from circinus.pipelines.errors import InvalidInput
from circinus.scheduler.pool.search import Pool, PoolSpace
from circinus.studies.pool.lookups import PoolLookup
from circinus.studies.pool.study import PoolRow, PoolStudy, run, searched, summary

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
