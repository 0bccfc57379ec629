import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from circinus.planner.deployment.pareto import diverse, undominated

_TABLES = st.lists(st.tuples(*[st.integers(0, 4)] * 3), min_size=1, max_size=30)


@given(_TABLES)
def test_the_front_is_what_comparing_all_pairs_leaves(rows: list[tuple[int, int, int]]) -> None:
    table = np.array(rows, dtype=float)
    front = set(undominated(table).tolist())
    for i, row in enumerate(table):
        beaten = ((table <= row).all(axis=1) & (table < row).any(axis=1)).any()
        earlier = (table[:i] == row).all(axis=1).any()
        assert (i in front) == (not beaten and not earlier)


@given(_TABLES, st.integers(3, 8))
def test_a_bounded_set_keeps_the_extremes(rows: list[tuple[int, int, int]], most: int) -> None:
    table = np.array(rows, dtype=float)
    kept = diverse(table, most, extremes=3)
    assert len(kept) == min(most, len(table))
    assert len(set(kept.tolist())) == len(kept)
    assert (table[kept].min(axis=0) == table.min(axis=0)).all()
