"""Trials at an earlier load, at a new one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from circinus.pipelines.errors import InvalidInput
from circinus.scheduler.pool.ribbon_space import EarlyEnd
from circinus.scheduler.pool.search import PoolSpace
from circinus.scheduler.simulation.measurements import LatencyTable
from circinus.studies.pool.lookups import SimulatedLoad
from circinus.studies.pool.study import LoadChange

SPACE = PoolSpace(types=("fast", "slow"), prices=(1.0, 0.4), most=(5, 6))
TABLE = LatencyTable(
    model="own",
    kinds=SPACE.types,
    batches=np.array([100, 500]),
    mean_s=np.array([[0.010, 0.030], [0.030, 0.100]]),
    std_s=np.zeros((2, 2)),
)
LOAD = SimulatedLoad(table=TABLE, qos_s=0.1, requests=1000)


def test_a_rate_that_no_pool_serves_has_no_table() -> None:
    with pytest.raises(InvalidInput, match="own at 100000 1/s must have a feasible pool"):
        LOAD.lookup(SPACE, 100_000.0)


def test_more_instances_of_one_type_serve_more_in_time() -> None:
    # some 25 ms each: one serves 40 a second
    shares = LOAD.lookup(SPACE, 100.0).shares
    alone = [shares[count, 0] for count in range(1, 6)]
    assert alone == sorted(alone)
    assert alone[0] < 0.5
    assert alone[-1] == 1.0


def test_the_same_requests_come_at_every_rate_and_others_with_another_seed() -> None:
    once, again = LOAD.lookup(SPACE, 100.0), LOAD.lookup(SPACE, 100.0)
    assert once.shares == again.shares
    assert replace(LOAD, seed=1).lookup(SPACE, 100.0).shares != once.shares


def test_a_trial_that_ends_early_violates_and_takes_a_part_of_the_requests() -> None:
    whole, short = LOAD.lookup(SPACE, 100.0), LOAD.lookup(SPACE, 100.0, EarlyEnd(longest_queue=9))
    assert short.shares == whole.shares
    assert short.optimum == whole.optimum
    for pool, share in whole.shares.items():
        trial = short.measure(pool)
        if trial.ended_early:
            assert not short.goal().feasible(trial)
            assert 0 < short.paid(pool) <= whole.paid(pool) == SPACE.cost(pool)
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
    change = LoadChange(earlier=LOAD.lookup(SPACE, 60.0), new=LOAD.lookup(SPACE, 120.0))
    assert change.new.optimum != change.earlier.optimum
    for row in change.rows(range(3)):
        for count, violating in (
            (row.scratch, row.violating_scratch),
            (row.reused, row.violating_reused),
        ):
            assert count is None or 2 <= count <= len(SPACE.pools)
            assert violating >= 1  # the settled pool
            assert count is None or violating < count
