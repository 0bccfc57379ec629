from __future__ import annotations

import numpy as np
import pytest

from circinus.pipelines.errors import InvalidInput
from circinus.scheduler.pool.kairos_bound import OneShotRule, kairos_bounds, one_shot
from circinus.scheduler.pool.throughput_bounds import throughput_bounds
from circinus.scheduler.simulation.loads import kairos_batches
from tests.scheduler.kairos_data import (
    BUDGET,
    QOS_S,
    latencies,
    needs_data,
    published_figures,
    space,
)


def test_no_pool_is_no_choice() -> None:
    with pytest.raises(InvalidInput, match="pools must not be empty"):
        one_shot(np.empty((0, 2), np.int64), np.empty(0))


def test_of_one_pool_it_is_that_one() -> None:
    assert one_shot(np.array([[0, 3]]), np.array([1.0])).pool == (0, 3)


def test_three_that_agree_on_the_base_give_the_highest() -> None:
    pools = np.array([[2, 0], [1, 1], [1, 2], [1, 3]])
    assert one_shot(pools, np.array([1.0, 3.0, 5.0, 4.0])) == ((1, 2), OneShotRule.HIGHEST)


def test_three_that_differ_give_the_one_nearest_to_the_others() -> None:
    # squared distances to the others: (2, 0): 1 + 10 = 11, (1, 0): 1 + 5 = 6, (1, 3)... by hand:
    # (2,0)-(1,0) 1, (2,0)-(1,3) 10, (1,0)-(1,3) 9: sums 11, 10, 19
    pools = np.array([[2, 0], [1, 0], [1, 3]])
    assert one_shot(pools, np.array([3.0, 2.0, 1.0])) == ((1, 0), OneShotRule.NEAREST)


def test_only_ten_have_a_say() -> None:
    pools = np.array([[i % 2, i] for i in range(10)] + [[0, 10**6]])
    chosen = one_shot(pools, -np.arange(11.0))
    # of 0 to 9 those in the middle are nearest; (0, 4) has alike base counts near it as (1, 5)
    assert chosen == ((0, 4), OneShotRule.NEAREST)


@needs_data
@pytest.mark.parametrize(
    ("model", "pool", "rule"),
    [
        ("rm2", (1, 0, 13, 0), OneShotRule.HIGHEST),
        ("wnd", (1, 0, 13, 0), OneShotRule.HIGHEST),
        ("mtwnd", (2, 0, 8, 1), OneShotRule.NEAREST),
    ],
)
def test_kairos_chooses_what_its_authors_figures_say(
    model: str, pool: tuple[int, ...], rule: OneShotRule
) -> None:
    pools = space().pools[space().within(BUDGET)]
    assert one_shot(pools, kairos_bounds(published_figures(model), pools)) == (pool, rule)


@needs_data
@pytest.mark.parametrize(
    ("model", "pool"),
    [("rm2", (1, 0, 13, 0)), ("wnd", (1, 0, 13, 0)), ("mtwnd", (2, 0, 9, 0))],
)
def test_the_highest_bound_of_the_linear_program_needs_no_rule(
    model: str, pool: tuple[int, ...]
) -> None:
    # the pools with the highest rate, too, see tests of `pool_search`: the rules would lose it
    table, pools = latencies(model), space().pools[space().within(BUDGET)]
    rows = table.rows(kairos_batches(20_000, np.random.default_rng(1)))
    share = np.bincount(rows, minlength=len(table.batches)) / len(rows)
    bounds = throughput_bounds(share, table.mean_s, pools, QOS_S[model], in_time=0.99)
    assert tuple(pools[bounds.argmax()].tolist()) == pool
