import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.knob_basis import KnobBasis
from planner.knob_process import correlations

RADICES = (3, 1, 4)  # the second knob has no choice
CELLS = np.array([[a, 0, b] for a in range(3) for b in range(4)])
TABLES = correlations(RADICES, (False, True, True))
EFFECTS, TOGETHER, CONSTANT, DECAY = (0.2, 0.3), 0.05, 0.1, 0.7


def _covariance(one: int, other: int) -> float:
    """Give k by its formula."""
    alike = [TABLES[k][CELLS[one, k], CELLS[other, k]] for k in (0, 2)]
    effects = sum(effect * r for effect, r in zip(EFFECTS, alike, strict=True))
    return float(CONSTANT + effects + TOGETHER * np.exp(-DECAY * sum(1 - r for r in alike)))


@given(st.lists(st.integers(0, 11), min_size=1, max_size=40))
def test_a_covariance_is_a_sum_of_rows_whatever_was_met_before(met: list[int]) -> None:
    basis = KnobBasis(CELLS, TABLES, DECAY)
    for candidate in met:
        parts = basis.parts(candidate)
        found = np.array([*EFFECTS, TOGETHER, CONSTANT]) @ basis.rows[parts]
        assert found == pytest.approx([_covariance(candidate, other) for other in range(12)])


@given(st.lists(st.integers(0, 11), max_size=40))
def test_rows_are_as_many_as_values_and_unlike_candidates_met(met: list[int]) -> None:
    basis = KnobBasis(CELLS, TABLES, DECAY)
    before = [basis.parts(candidate).tolist() for candidate in met]
    assert len(basis.rows) == 1 + 3 + 4 + len(set(met))
    assert [basis.parts(candidate).tolist() for candidate in met] == before


def test_without_a_choice_all_is_one_and_the_same() -> None:
    basis = KnobBasis(np.zeros((1, 2), dtype=np.int64), correlations((1, 1), (True, True)), DECAY)
    parts = basis.parts(0)
    assert basis.rows[parts].tolist() == [[1.0], [1.0]]
