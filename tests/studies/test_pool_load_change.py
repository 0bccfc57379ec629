"""Trials at an earlier load, at a new one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from circinus.pipelines.errors import InvalidInput
from circinus.scheduler.pool.pools import PoolSpace
from circinus.scheduler.simulation.measurements import LatencyTable
from circinus.studies.pool.load_change import LoadChange
from circinus.studies.pool.simulated import SimulatedLoad

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
