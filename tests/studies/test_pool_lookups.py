"""Tables of what every pool does, beside the published ones where they are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from circinus.pipelines.errors import InvalidInput
from circinus.scheduler.pool.search import Pool, PoolGoal
from circinus.studies.data import DATA
from circinus.studies.pool.lookups import PoolLookup, read_lookup
from circinus.studies.pool.methods import POOL_METHODS

PRICES = "instance,usd_per_hour\na,2.0\nb,0.5\n"
# 1 a + 1 b for 2.5; 2 a for 4.0
TABLE = {
    "0, 1": [0.4, 10.0],
    "1, 0": [2.0, 60.0],
    "1, 1": [2.4, 99.0],
    "2, 0": [4.0, 99.5],
    "2, 1": [4.4, 98.99],
}


def read(
    folder: Path, table: object = TABLE, prices: str = PRICES, types: str | None = "a,b"
) -> PoolLookup:
    path = folder / "ribbon_lookup_own.json"
    path.write_text(table if isinstance(table, str) else json.dumps(table))
    (folder / "instance_prices.csv").write_text(prices)
    return read_lookup(path, types.split(",") if types else None)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("[", "lookup must be JSON"),
        ([], "lookup must map pools to price and percent in time"),
        ({}, "lookup must map pools to price and percent in time"),
        ({"one": [1.0, 2.0]}, "lookup must have counts as keys, got 'one'"),
        ({"1": [1.0, 2.0]}, "lookup must have 2 counts >= 0 in each key, got '1'"),
        ({"1, -1": [1.0, 2.0]}, "lookup must have 2 counts >= 0 in each key"),
        ({"1, 0": 99.0}, "lookup must give price and percent in time of 1, 0"),
        ({"1, 0": [1.0, "99"]}, "lookup must give price and percent in time of 1, 0"),
        ({"1, 0": [1.0, 100.1]}, "lookup must give price and percent in time of 1, 0"),
        (TABLE | {"0, 2": [0.8, 1.0]}, r"own must have every pool, missing, got \[\(1, 2\)"),
        ({"0, 1": [1, 1], "1, 0": [1, 1], "1, 1": [1, 98]}, "own must have a feasible pool"),
        ({"0, 0": [0, 0]}, "most must not be 0 for every type"),
    ],
)
def test_a_table_that_is_none_is_refused(tmp_path: Path, table: object, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        read(tmp_path, table)


@pytest.mark.parametrize(
    ("prices", "message"),
    [
        ("a,b\n1,2\n", "prices must have the columns instance and usd_per_hour"),
        ("instance,usd_per_hour\na,x\n", "prices must have the columns .* a number"),
        ("instance,usd_per_hour\na\n", "prices must have the columns .* a number"),
        ("instance,usd_per_hour\na,1\n", "types must be among a, got 'b'"),
        ("instance,usd_per_hour\na,1\nb,-1\n", "prices of b must be finite and >= 0"),
    ],
)
def test_prices_that_are_none_are_refused(tmp_path: Path, prices: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        read(tmp_path, prices=prices)


def test_types_are_known_of_published_models_only(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="types of own must be told unless it is one of mtwnd"):
        read(tmp_path, types=None)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="lookup must be a readable file"):
        read_lookup(tmp_path / "none.json", ["a"])


def test_the_optimum_is_the_cheapest_in_time_at_exact_prices(tmp_path: Path) -> None:
    lookup = read(tmp_path)
    assert lookup.model == "own"
    assert lookup.space.most == (2, 1)
    assert lookup.optimum == (1, 1)
    assert lookup.space.cost((1, 1)) == 2.5  # not the 2.4 of the table
    assert lookup.homogeneous == (2, 0)
    assert lookup.saving == pytest.approx(1.5 / 4.0)
    assert lookup.measure((2, 1)).value == pytest.approx(0.9899)


def test_nothing_is_saved_where_one_type_alone_is_never_in_time_or_free(tmp_path: Path) -> None:
    mixed = read(tmp_path, TABLE | {"2, 0": [4.0, 90.0]})
    assert mixed.homogeneous is None
    assert mixed.saving is None
    free = read(tmp_path, prices="instance,usd_per_hour\na,0\nb,0\n")
    assert free.saving is None


@pytest.mark.parametrize(
    ("model", "pools", "optimum", "saving"),
    [("mtwnd", 857, (4, 0, 1), 0.143), ("resnet", 1079, (4, 0, 5), 0.162)],
)
def test_the_published_savings_are_found_again(
    model: str, pools: int, optimum: tuple[int, ...], saving: float
) -> None:
    lookup = read_lookup(DATA / f"ribbon_lookup_{model}.json")
    assert len(lookup.space.pools) == pools
    assert lookup.optimum == optimum
    assert lookup.saving == pytest.approx(saving, abs=5e-4)


@pytest.mark.parametrize(("model", "lost"), [("mtwnd", 0), ("resnet", 36)])
def test_no_published_pruning_loses_the_optimum_of_a_published_table(
    model: str, lost: int
) -> None:
    lookup = read_lookup(DATA / f"ribbon_lookup_{model}.json")
    place = lookup.space.place(lookup.optimum)
    pools: list[Pool] = [tuple(pool) for pool in lookup.space.pools[~lookup.feasible].tolist()]

    def losing(goal: PoolGoal) -> int:
        """How many violating pools rule the optimum out, tried alone."""
        return sum(bool(goal.hopeless([lookup.measure(pool)])[place]) for pool in pools)

    for name in ("ribbon", "ribbon_artefact", "random"):
        assert losing(POOL_METHODS[name].goal(lookup)) == 0
    # where every violation prunes all that it contains
    assert losing(lookup.goal(0.0)) == lost
