from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.io.presets import PRESETS
from circinus.pipelines.model.graph import PipelineGraph
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.operators import OperatorSpec
from circinus.planner.deployment.pareto import diverse, undominated
from circinus.planner.deployment.placement import placements
from tests.oracles.synthetic import chain

THREE = PRESETS["three-tier"]


def _without_machines(*names: str) -> Infrastructure:
    tiers = tuple(replace(t, machines=0 if t.name in names else 2) for t in THREE.tiers)
    return replace(THREE, tiers=tiers)


def test_an_infrastructure_without_machines_is_refused() -> None:
    with pytest.raises(InvalidInput, match="at least one machine"):
        placements(chain(2), _without_machines("device", "mec", "cloud"))


def test_too_many_placements_even_upwards_are_refused() -> None:
    # Upwards: (10 + 2 choose 2) = 66.
    with pytest.raises(InvalidInput, match="at most 65 placements"):
        placements(chain(*[2] * 10), THREE, most=65)


def test_all_placements_when_they_are_few() -> None:
    assert len(placements(chain(2, 2), THREE)) == 9


def test_data_never_goes_back_down_when_they_are_many() -> None:
    found = placements(chain(*[2] * 10), THREE, most=66)
    assert len(found) == 66
    assert (np.diff(found.tiers, axis=1) >= 0).all()


def test_tiers_without_machines_are_not_used() -> None:
    assert set(placements(chain(2, 2), _without_machines("mec")).tiers.ravel()) == {0, 2}


def test_operators_that_run_at_once_share_the_machine() -> None:
    wide = PipelineGraph(name="wide", operators=tuple(OperatorSpec(name=n) for n in "abc"))
    found = placements(wide, PRESETS["one-tier"])
    assert found.widths.tolist() == [[3]]
    assert found.full_steps.tolist() == [[6]]  # 3 x 0.3 fits, 3 x 0.35 does not


def test_more_operators_at_once_than_share_steps_fit_no_machine() -> None:
    names = [f"o{i}" for i in range(21)]
    wide = PipelineGraph(name="wide", operators=tuple(OperatorSpec(name=n) for n in names))
    with pytest.raises(InvalidInput, match="at most 20 operators at once"):
        placements(wide, PRESETS["one-tier"])


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
