import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from circinus.planner.models.knob_basis import KnobBasis
from circinus.planner.models.knob_process import correlations

RADICES = (3, 1, 4)  # the second knob has no choice
CELLS = np.array([[a, 0, b] for a in range(3) for b in range(4)])
TABLES = correlations(RADICES, (False, True, True))
EFFECTS, TOGETHER, CONSTANT, DECAY = (0.2, 0.3), 0.05, 0.1, 0.7


def _covariance(one: int, other: int) -> float:
    """Return k by its formula."""
    alike = [TABLES[k][CELLS[one, k], CELLS[other, k]] for k in (0, 2)]
    effects = sum(effect * r for effect, r in zip(EFFECTS, alike, strict=True))
    return float(CONSTANT + effects + TOGETHER * np.exp(-DECAY * sum(1 - r for r in alike)))


@given(st.lists(st.integers(0, 11), min_size=1, max_size=40))
def test_a_covariance_is_a_sum_of_rows_whatever_was_met_before(met: list[int]) -> None:
    basis = KnobBasis(CELLS, TABLES, DECAY)
    for candidate in met:
        parts = basis.parts(candidate)
        found = np.array([*EFFECTS, TOGETHER, CONSTANT]) @ basis.at(range(12))[parts]
        assert found == pytest.approx([_covariance(candidate, other) for other in range(12)])


@given(st.lists(st.integers(0, 11), max_size=40))
def test_rows_are_as_many_as_values_and_unlike_candidates_met(met: list[int]) -> None:
    basis = KnobBasis(CELLS, TABLES, DECAY)
    before = [basis.parts(candidate).tolist() for candidate in met]
    assert len(basis) == 1 + 3 + 4 + len(set(met))
    assert [basis.parts(candidate).tolist() for candidate in met] == before


def test_more_candidates_than_there_was_room_for_are_taken_in() -> None:
    cells = np.arange(700)[:, None]
    basis = KnobBasis(cells, correlations((700,), (True,)), DECAY)
    parts = np.stack([basis.parts(candidate) for candidate in range(700)])
    every = basis.at(range(700))
    assert np.diag(every[parts[:, 0]]) == pytest.approx(1.0)
    assert np.diag(every[parts[:, 1]]) == pytest.approx(1.0)


def test_without_a_choice_all_is_one_and_the_same() -> None:
    basis = KnobBasis(np.zeros((1, 2), dtype=np.int64), correlations((1, 1), (True, True)), DECAY)
    parts = basis.parts(0)
    assert basis.at([0])[parts].tolist() == [[1.0], [1.0]]


@given(
    count=st.sampled_from([1, 12, 60]),
    met=st.lists(st.integers(0, 4), min_size=1, max_size=6),
    whole=st.booleans(),
    seed=st.integers(0, 99),
)
def test_sums_of_rows_and_of_their_squares_are_those_of_b_written_out(
    count: int, met: list[int], whole: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    cells = CELLS if whole else CELLS[np.sort(rng.choice(12, 5, replace=False))]
    basis = KnobBasis(cells, TABLES, DECAY)
    for candidate in met:
        basis.parts(candidate)
    weights = np.tril(rng.standard_normal((count, len(basis))))
    sums = weights @ basis.at(range(len(cells)))
    assert basis.combined(weights[-1]) == pytest.approx(sums[-1])
    assert basis.squared(weights) == pytest.approx(np.square(sums).sum(axis=0))
